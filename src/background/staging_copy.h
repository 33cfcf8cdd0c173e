// Copies the bytes of a snapshot, with many threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "background/staging_device.h"
#include "background/staging_layout.h"
#include "base/crew.h"

namespace cairn {

// A snapshot's live tensors and the memory for their copies.
struct StagingWork {
  StagingLayout layout;
  std::vector<PlaceMemory> memory;  // by place
};

// One snapshot's copying.
class StagingCopy {
 public:
  // `begin` completes the memory before anything is copied, `finish` looks at what was copied; both are
  // called once, by the thread that copies.
  using Step = std::function<void(StagingWork&)>;
  StagingCopy(StagingWork work, Step begin, Step finish, std::shared_ptr<DeviceLanes> lanes);
  StagingCopy(const StagingCopy&) = delete;
  StagingCopy& operator=(const StagingCopy&) = delete;
  ~StagingCopy();  // waits for the copying to end

  // Copies with so many threads. Returns when all is copied, or at once (`overlapped`; little is copied here
  // and now all the same). Call once.
  //
  // The first copies of a device pass through a ring, because to pin memory takes longer than to copy. What
  // they went to is pinned when the snapshot is whole, for the next one; nobody but the destructor waits.
  void run(int threads, bool overlapped) noexcept;

  std::shared_future<void> whole() const { return whole_; }
  std::shared_ptr<const std::atomic<std::uint64_t>> copied() const { return copied_; }

 private:
  // Bytes as they are, or rows of a tensor whose elements are gathered; in the CPU's memory.
  struct Stretch {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::uint64_t bytes = 0;
    const TensorView* gathered = nullptr;  // then `from` is not used
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
  };
  void conduct(int threads) noexcept;
  void copy_all(int threads);
  void pin_all(int threads) noexcept;
  void cut_all();
  void cut(const StagedRun& run, std::byte* memory);
  void cut(const TensorView& tensor, std::byte* to);
  void group_pieces();
  void work();
  void take_jobs(DeviceCopier* copier);
  void copy_batch(std::size_t batch);
  bool is_little() const;

  StagingWork work_;
  Step begin_;
  Step finish_;
  std::shared_ptr<DeviceLanes> lanes_;

  std::vector<UnpinnedCell> unpinned_;  // of the tasks, when all is copied

  // Jobs that a thread takes: first those of devices, then batches of pieces.
  std::vector<DeviceTask> tasks_;
  std::vector<TensorView> views_;  // of the tensors to gather
  std::vector<Stretch> pieces_;
  std::vector<std::size_t> batches_;  // where each begins in pieces_, and the end
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::shared_ptr<std::atomic<std::uint64_t>> copied_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::promise<void> promise_;
  std::shared_future<void> whole_ = promise_.get_future().share();
  Crew conductor_;  // one thread, which starts the others: of an overlapped copy, and of pinning
};

}  // namespace cairn
