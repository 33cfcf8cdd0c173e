#include "storage/s3/retry.h"

#include <algorithm>
#include <bit>
#include <random>

namespace cairn::s3 {
namespace {

constexpr double kMostRetries = 100;
constexpr double kRetriesPerRequest = 0.2;
constexpr int kMostHedges = 2;
constexpr std::size_t kFewReads = 8;

std::size_t size_class(std::size_t bytes, std::size_t classes) {
  return std::min<std::size_t>(std::bit_width(bytes), classes - 1);
}

}  // namespace

std::chrono::milliseconds delay_of_retry(int tries_before, std::chrono::milliseconds first,
                                         std::chrono::milliseconds most) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const std::int64_t doubled = first.count() << std::clamp(tries_before, 0, 20);
  const std::int64_t longest = std::clamp<std::int64_t>(doubled, 0, most.count());
  return std::chrono::milliseconds(std::uniform_int_distribution<std::int64_t>(0, longest)(random));
}

Pace::Pace(int most_in_flight) : most_(std::max(1, most_in_flight)), places_(most_), retries_(kMostRetries) {}

bool Pace::enter(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (!room_.wait_until(lock, until, [&] { return in_flight_ < places_; })) return false;
  ++in_flight_;
  return true;
}

void Pace::leave() {
  const std::lock_guard lock(mutex_);
  --in_flight_;
  room_.notify_one();
}

Pace::Clock::time_point Pace::not_before() const {
  const std::lock_guard lock(mutex_);
  return not_before_;
}

void Pace::went_well() {
  const std::lock_guard lock(mutex_);
  if (places_ == most_ || ++good_ < places_) return;
  good_ = 0;
  ++places_;
  room_.notify_one();
}

void Pace::slowed_down(Clock::time_point sent, std::chrono::milliseconds delay) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  not_before_ = std::max(not_before_, now + delay);
  if (sent < halved_) return;
  halved_ = now;
  good_ = 0;
  places_ = std::max(1, places_ / 2);
}

int Pace::places() const {
  const std::lock_guard lock(mutex_);
  return places_;
}

bool Pace::take_retry() {
  const std::lock_guard lock(mutex_);
  if (retries_ < 1) return false;
  retries_ -= 1;
  return true;
}

void Pace::sent_one() {
  const std::lock_guard lock(mutex_);
  retries_ = std::min(kMostRetries, retries_ + kRetriesPerRequest);
}

void Pace::took(std::size_t bytes, Clock::duration time) {
  const std::lock_guard lock(mutex_);
  Times& times = times_[size_class(bytes, kSizes)];
  times.latest[times.count++ % kLatest] = time;
}

std::optional<Pace::Clock::duration> Pace::usual(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Times& times = times_[size_class(bytes, kSizes)];
  if (times.count < kFewReads) return std::nullopt;
  auto latest = times.latest;
  const auto end = latest.begin() + static_cast<std::ptrdiff_t>(std::min(times.count, kLatest));
  const auto middle = latest.begin() + (end - latest.begin()) / 2;
  std::nth_element(latest.begin(), middle, end);
  return *middle;
}

bool Pace::enter_hedge() {
  const std::lock_guard lock(mutex_);
  if (hedges_ == kMostHedges || in_flight_ >= places_ || retries_ < 1 || not_before_ > Clock::now())
    return false;
  ++hedges_;
  ++in_flight_;
  retries_ -= 1;
  return true;
}

void Pace::leave_hedge() {
  const std::lock_guard lock(mutex_);
  --hedges_;
  --in_flight_;
  room_.notify_one();
}

}  // namespace cairn::s3
