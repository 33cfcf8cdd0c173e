// One data file, written front to back at the speed of the disk.
//
// The caller appends; a thread of the stream's own writes. Small appends are gathered in aligned buffers. A
// large one goes to the file from where it is: past the page cache, when its memory is aligned, it is summed
// here while the disk takes it, and append() returns when both are done; through the page cache, it is summed
// and written here, tile by tile, while the tile is in the processor's cache. Used by one thread at a time.
//
//   FileStream stream(files->create("__0_0.distcp", {.size = total}), {});
//   stream.pad(64);
//   stream.begin_item();
//   write_torch_file(stream, value);
//   stream.end_item();
//   ManifestFile sums = stream.commit("__0_0.distcp");
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/sink.h"
#include "cairn/storage.h"
#include "cairn/tensor.h"
#include "format/manifest.h"

namespace cairn {

struct StreamOptions {
  std::size_t buffer_bytes = 4U << 20;  // a multiple of kDirectAlignment
  int buffers = 3;                      // one being filled, the others on their way
  std::size_t least_direct = 1U << 20;  // appends from this size on are not copied if they are aligned
  bool checksums = true;
  bool strong_hashes = false;
};

// How a writer cuts its memory: so many buffers of a file, each a share of half the budget.
inline constexpr int kBuffersPerFile = 3;
inline constexpr std::uint64_t kLargestBuffer = 4U << 20;
inline constexpr std::uint64_t kSmallestBuffer = 128U << 10;
inline std::uint64_t buffer_share(std::uint64_t budget, int files, int buffers, std::uint64_t most) {
  const std::uint64_t share = budget / 2 / static_cast<std::uint64_t>(files * buffers);
  return std::clamp(share / kDirectAlignment * kDirectAlignment, kSmallestBuffer, most);
}

class FileStream final : public ByteSink {
 public:
  FileStream(std::unique_ptr<FileWriter> file, const StreamOptions& options);
  ~FileStream() override;  // without commit() nothing stays behind

  // Throws what writing has thrown, as soon as it is known.
  void append(ByteSpan bytes) override;
  void pad(std::uint64_t bytes);  // zeros
  std::uint64_t position() const { return position_; }

  // What is appended from here on is of this tensor: an error of the writing thread names it.
  void begin_tensor(std::string_view name);

  // What is appended in between is one item: it gets a checksum of its own. So does a part of one.
  void begin_item();
  std::uint32_t end_item();  // its CRC-32; 0 without checksums
  void begin_part();
  std::uint32_t end_part();  // the same

  // Room in a buffer for what comes next, at most `most` bytes of it and at least one: for who makes bytes
  // rather than having them. advance() says how many were put there.
  std::span<std::byte> room(std::size_t most);
  void advance(std::size_t bytes);

  // Everything is written, durable and visible under `name`. Call once, last. Without checksums the result
  // has none.
  ManifestFile commit(std::string name);

 private:
  struct Job {
    std::uint64_t offset;
    ByteSpan bytes;
    int buffer;  // to be freed afterwards; -1: the caller's memory
  };
  void write_jobs();
  void write(const Job& job);
  void submit(Job job);
  void flush();
  void wait_until_idle();
  void take_buffer();
  void append_copied(ByteSpan bytes);
  void append_past_cache(ByteSpan bytes);
  void append_through_cache(ByteSpan bytes);
  void rethrow();

  std::unique_ptr<FileWriter> file_;
  const StreamOptions options_;
  ChecksumStream sums_;
  std::uint64_t position_ = 0;  // of the next append
  std::vector<Tensor> memory_;  // the buffers
  int filling_ = -1;            // the buffer being filled
  std::size_t filled_ = 0;      // bytes in it
  bool committed_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<int> free_;
  std::size_t unfinished_ = 0;  // jobs not done yet
  bool stop_ = false;
  std::exception_ptr failure_;
  std::uint64_t written_ = 0;                                  // the end of the last job that was done
  std::deque<std::pair<std::uint64_t, std::string>> tensors_;  // where each begins; those behind written_ go
  std::thread thread_;
};

}  // namespace cairn
