#include "save/pace.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::chrono::milliseconds kLongestSleep(20);  // a cancellation is noticed after that
constexpr std::size_t kCancellablePiece = std::size_t{64}
                                          << 20;  // large: every cut costs a little of the speed
constexpr std::size_t kPacedPiece = std::size_t{1} << 20;

}  // namespace

Pace::Pace(const std::atomic<bool>* cancelled, Clock::time_point deadline, std::uint64_t bytes_per_second)
    : cancelled_(cancelled), deadline_(deadline), bytes_per_second_(bytes_per_second) {}

std::size_t Pace::piece_bytes() const {
  if (bytes_per_second_ > 0) return kPacedPiece;
  return cancelled_ != nullptr ? kCancellablePiece : std::numeric_limits<std::size_t>::max();
}

void Pace::require_wanted() const {
  if (cancelled_ != nullptr && *cancelled_) throw Error(ErrorCode::kCancelled, "the save was cancelled");
  if (deadline_ != Clock::time_point::max() && Clock::now() > deadline_)
    throw Error(ErrorCode::kTimeout, "the save's deadline passed before all was written");
}

Pace::Clock::time_point Pace::take_turn(std::uint64_t bytes) {
  const std::chrono::duration<double> time(static_cast<double>(bytes) /
                                           static_cast<double>(bytes_per_second_));
  const std::lock_guard lock(mutex_);
  const Clock::time_point turn = std::max(next_, Clock::now());
  next_ = turn + std::chrono::duration_cast<Clock::duration>(time);
  return turn;
}

void Pace::pass(std::uint64_t bytes) {
  require_wanted();
  if (bytes_per_second_ == 0 || bytes == 0) return;
  const Clock::time_point turn = take_turn(bytes);
  for (auto now = Clock::now(); now < turn; now = Clock::now()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(turn - now, kLongestSleep));
    require_wanted();
  }
}

}  // namespace cairn
