// Copies the bytes of a snapshot, with many threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/staging_layout.h"

namespace cairn {

// One snapshot's copying. Whoever copies last calls `finish`, once, and then the future is ready.
class StagingCopy {
 public:
  // `memory` is what the layout was placed in.
  StagingCopy(const StagingLayout& layout, std::byte* memory, std::function<void()> finish);
  StagingCopy(const StagingCopy&) = delete;
  StagingCopy& operator=(const StagingCopy&) = delete;
  ~StagingCopy();  // waits for the copying to end

  // Copies with so many threads. Returns when all is copied, or at once (`overlapped`; little is copied here
  // and now all the same). Call once.
  void run(int threads, bool overlapped);

  std::shared_future<void> whole() const { return whole_; }
  std::shared_ptr<const std::atomic<std::uint64_t>> copied() const { return copied_; }

 private:
  // Bytes as they are, or rows of a tensor whose elements are gathered.
  struct Piece {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::uint64_t bytes = 0;
    const TensorView* gathered = nullptr;  // then `from` is not used
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
  };
  void cut(const StagedRun& run, std::byte* memory);
  void cut(const TensorView& tensor, std::byte* to);
  void group_pieces();
  void work() noexcept;
  void copy_batch(std::size_t batch);
  void end_batch() noexcept;

  std::vector<TensorView> views_;  // of the tensors to gather
  std::vector<Piece> pieces_;
  std::vector<std::size_t>
      batches_;  // where each begins in pieces_, and the end: what a thread takes at once
  std::uint64_t bytes_ = 0;
  std::function<void()> finish_;

  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::size_t> unfinished_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> copied_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::mutex mutex_;  // guards failure_
  std::exception_ptr failure_;
  std::promise<void> promise_;
  std::shared_future<void> whole_ = promise_.get_future().share();
  std::vector<std::thread> threads_;
};

}  // namespace cairn
