// Memory that threads share out among themselves.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace cairn {

// Waits until there is enough. Who wants more than there is in all waits until nobody else has any.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t bytes) : total_(bytes), left_(bytes) {}

  std::uint64_t total() const { return total_; }

  class Claim {
   public:
    Claim(MemoryBudget& budget, std::uint64_t bytes)
        : budget_(budget), bytes_(std::min(bytes, budget.total_)) {
      std::unique_lock lock(budget_.mutex_);
      budget_.freed_.wait(lock, [&] { return budget_.left_ >= bytes_; });
      budget_.left_ -= bytes_;
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
      {
        const std::lock_guard lock(budget_.mutex_);
        budget_.left_ += bytes_;
      }
      budget_.freed_.notify_all();
    }

   private:
    MemoryBudget& budget_;
    std::uint64_t bytes_;
  };

 private:
  const std::uint64_t total_;
  std::uint64_t left_;
  std::mutex mutex_;
  std::condition_variable freed_;
};

}  // namespace cairn
