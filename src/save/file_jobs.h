// Files that one rank writes at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/parallel.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/storage.h"

namespace cairn {

// How many files to write at a time where nobody said it. Far away, waiting takes most of the time and no
// processor.
inline int files_at_once(const FileSystem& files, int processors) {
  constexpr int kFarFiles = 8;
  return files.is_far() ? std::max(processors, kFarFiles) : processors;
}

// How far all files are, and whether to go on with them. Used by the threads that write.
class FileJobs {
 public:
  // `progress` hears of `total` bytes; borrowed.
  FileJobs(const ProgressCallback& progress, std::uint64_t total) : progress_(progress), total_(total) {}

  // Calls write(i) for every file below `count`, `at_once` at a time. When one fails no other is begun, those
  // under way are told to stop, and the failure is thrown here.
  void run(std::size_t count, int at_once, const std::function<void(std::size_t)>& write) {
    for_each_in_parallel(
        count, at_once, [&](std::size_t i, int) { write(i); }, [&] { stopped_ = true; });
  }

  // Asked between items: the file is left as it is then.
  bool stopped() const { return stopped_; }

  void report(std::uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_({"write", done_, total_});
  }

 private:
  const ProgressCallback& progress_;
  const std::uint64_t total_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards done_, and one call of progress_ at a time
  std::uint64_t done_ = 0;
};

}  // namespace cairn
