#include "background/staging_budget.h"

#include <fmt/format.h>

#include <limits>

#include "cairn/error.h"

namespace cairn {

DeviceBudget::DeviceBudget(std::uint64_t bytes)
    : budget_(bytes > 0 ? bytes : std::numeric_limits<std::uint64_t>::max()) {}

std::shared_ptr<void> DeviceBudget::take(int device, std::uint64_t bytes, Time deadline) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return bytes <= budget_ && held_[device] <= budget_ - bytes; };
  const bool may_wait = bytes <= budget_ && deadline > std::chrono::steady_clock::now();
  if (may_wait && deadline == Time::max()) changed_.wait(lock, fits);
  if (may_wait && deadline != Time::max() && !changed_.wait_until(lock, deadline, fits)) {
    throw Error(ErrorCode::kTimeout, fmt::format("older snapshots hold the memory of device {}", device))
        .while_doing("staging");
  }
  if (!fits()) {
    throw Error(ErrorCode::kLimit,
                fmt::format("the snapshot needs {} bytes of device {}, and the budget is {}, of which older "
                            "ones hold {}: raise it, or let the snapshot go to the CPU's memory (kAuto)",
                            bytes, device, budget_, held_[device]))
        .while_doing("staging");
  }
  held_[device] += bytes;
  return {this, [self = shared_from_this(), device, bytes](void*) {
            {
              const std::lock_guard guard(self->mutex_);
              self->held_[device] -= bytes;
            }
            self->changed_.notify_all();
          }};
}

}  // namespace cairn
