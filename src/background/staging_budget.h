// How much of each device's memory snapshots may take.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace cairn {

// Used by many threads at once. Held by a shared_ptr, because what was taken may outlive whoever made it.
class DeviceBudget : public std::enable_shared_from_this<DeviceBudget> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit DeviceBudget(std::uint64_t bytes);  // of each device; 0: no limit

  std::uint64_t bytes() const { return budget_; }
  // So many bytes of a device until the last copy of the pointer is gone. Error(kLimit) when that is more
  // than there can be, or more than there is and the deadline has passed; kTimeout at the deadline.
  std::shared_ptr<void> take(int device, std::uint64_t bytes, Time deadline);

 private:
  const std::uint64_t budget_;
  std::mutex mutex_;  // guards held_
  std::condition_variable changed_;
  std::map<int, std::uint64_t> held_;  // bytes, by device
};

}  // namespace cairn
