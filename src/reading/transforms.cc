#include "reading/transforms.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/file_limit.h"
#include "base/sink.h"
#include "cairn/error.h"
#include "format/zstd_decoder.h"

namespace cairn {
namespace {

[[maybe_unused]] constexpr std::string_view kZstd = "stream.zstd/1";
[[maybe_unused]] constexpr std::size_t kUnpackedPiece = 128U << 10;  // bytes that are unpacked at a time

// A source that keeps its bytes itself.
struct OwnedBytes {
  std::string bytes;
  std::shared_ptr<const ByteSource> source;
};

std::shared_ptr<const ByteSource> source_of(std::string bytes, std::string name) {
  auto owned = std::make_shared<OwnedBytes>();
  owned->bytes = std::move(bytes);
  owned->source = memory_source(as_bytes(owned->bytes), std::move(name));
  return {owned, owned->source.get()};
}

#ifdef CAIRN_HAVE_ZSTD

void unzstd(const ByteSource& item, std::uint64_t max_bytes, ByteSink& sink) {
  ZstdDecoder decoder(item, max_bytes);
  std::vector<std::byte> piece(kUnpackedPiece);
  for (std::size_t got = piece.size(); got == piece.size();) {
    got = decoder.read(piece);
    sink.append(std::span(piece).first(got));
  }
}

#endif

// A file without a name: it goes when it is closed.
int open_nameless(const std::string& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = directory + "/.cairn-spill-XXXXXX";  // a file system that has none
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    throw Error(ErrorCode::kIo, "cannot make a file for an item that is too large for the budget")
        .in_file(directory)
        .with_errno(errno);
  }
  ::unlink(name.c_str());
  return fd;
}

// Bytes in memory up to a size, and all of them in a file beyond it.
class SpillSink final : public ByteSink {
 public:
  SpillSink(std::uint64_t most_in_memory, const std::string& directory)
      : most_(most_in_memory), directory_(directory) {}
  SpillSink(const SpillSink&) = delete;
  SpillSink& operator=(const SpillSink&) = delete;
  ~SpillSink() override {
    if (fd_ >= 0) ::close(fd_);
  }

  void append(ByteSpan bytes) override {
    memory_ += as_text(bytes);
    if (memory_.size() <= most_) return;
    if (fd_ < 0) fd_ = open_nameless(directory_);
    if (memory_.size() > largest_file() || spilt_ > largest_file() - memory_.size()) fail(EFBIG);
    for (std::string_view rest = memory_; !rest.empty();) {
      const ssize_t put = ::write(fd_, rest.data(), rest.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail(errno);
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
    spilt_ += memory_.size();
    memory_.clear();
    most_ = 0;  // from here on all goes to the file
  }

  std::shared_ptr<const ByteSource> take(const std::string& name) {
    if (fd_ < 0) return source_of(std::move(memory_), name);
    return source_of_descriptor(std::exchange(fd_, -1), name);
  }

 private:
  [[noreturn]] void fail(int os_error) const {
    throw Error(ErrorCode::kIo, "cannot write an item that is too large for the budget")
        .in_file(directory_)
        .with_errno(os_error);
  }

  std::uint64_t most_;
  const std::string& directory_;
  std::string memory_;
  std::uint64_t spilt_ = 0;  // bytes in the file
  int fd_ = -1;
};

void undo(const ByteSource& item, const std::string& transform, [[maybe_unused]] std::uint64_t max_bytes,
          [[maybe_unused]] ByteSink& sink) {
#ifdef CAIRN_HAVE_ZSTD
  if (transform == kZstd) return unzstd(item, max_bytes, sink);
  const std::string_view known = kZstd;
#else
  const std::string_view known = "none, in this build without libzstd";
#endif
  throw Error(ErrorCode::kUnsupported, fmt::format("the item went through the transform '{}'; known are: {}",
                                                   transform.substr(0, 256), known));
}

}  // namespace

bool can_be_streamed([[maybe_unused]] const std::vector<std::string>& transforms) {
#ifdef CAIRN_HAVE_ZSTD
  return transforms.size() == 1 && transforms.front() == kZstd;
#else
  return false;
#endif
}

std::string undo_transforms_in_memory(const ByteSource& item, const std::vector<std::string>& transforms,
                                      std::uint64_t max_bytes) {
  std::string bytes;
  const ByteSource* from = &item;
  std::shared_ptr<const ByteSource> between;
  for (const std::string& transform : transforms) {
    StringSink plain;
    undo(*from, transform, max_bytes, plain);
    bytes = std::move(plain.text);
    between = memory_source(as_bytes(bytes), item.name());
    from = between.get();
  }
  return transforms.empty() ? read_all(item) : bytes;
}

std::shared_ptr<const ByteSource> undo_transforms_anywhere(const ByteSource& item,
                                                           const std::vector<std::string>& transforms,
                                                           std::uint64_t max_bytes,
                                                           std::uint64_t most_in_memory,
                                                           const std::string& directory) {
  const ByteSource* from = &item;
  std::shared_ptr<const ByteSource> plain;
  for (const std::string& transform : transforms) {
    SpillSink sink(most_in_memory, directory);
    undo(*from, transform, max_bytes, sink);
    plain = sink.take(item.name());
    from = plain.get();
  }
  return plain;
}

std::shared_ptr<const ByteSource> undo_transforms(std::shared_ptr<const ByteSource> item,
                                                  const std::vector<std::string>& transforms,
                                                  std::uint64_t max_bytes) {
  if (transforms.empty()) return item;
  return source_of(undo_transforms_in_memory(*item, transforms, max_bytes), item->name());
}

}  // namespace cairn
