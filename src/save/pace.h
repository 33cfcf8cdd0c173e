// How fast a save may write, and whether it may go on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace cairn {

// Shared by all writing threads of a rank.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  // `cancelled` may be null; 0 bytes per second are no limit.
  Pace(const std::atomic<bool>* cancelled, Clock::time_point deadline, std::uint64_t bytes_per_second);

  // Call before writing so many bytes: waits until their turn has come. Error(kCancelled); kTimeout after the
  // deadline: what is written then is written in vain.
  void pass(std::uint64_t bytes);

  // How much to write between two calls of pass().
  std::size_t piece_bytes() const;

 private:
  Clock::time_point take_turn(std::uint64_t bytes);
  void require_wanted() const;

  const std::atomic<bool>* cancelled_;
  const Clock::time_point deadline_;
  const std::uint64_t bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point next_{};  // when the bytes that have passed are written, at the permitted speed
};

}  // namespace cairn
