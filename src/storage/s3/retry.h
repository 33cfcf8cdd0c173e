// How fast a client may go: what its threads share of delays, of places among the requests under way, of
// second tries, and of how long reads take.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace cairn::s3 {

// "Full jitter": anything up to `first` doubled so many times, and never beyond `most`.
std::chrono::milliseconds delay_of_retry(int tries_before, std::chrono::milliseconds first,
                                         std::chrono::milliseconds most);

class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Pace(int most_in_flight);

  // Takes a place among those under way; waits for one until then. False: there was none.
  bool enter(Clock::time_point until);
  void leave();
  // No request is to be sent before.
  Clock::time_point not_before() const;

  // A request that was sent at that time has been answered well, or with the wish for fewer. One wave of such
  // answers halves the places once; as many good answers as there are places bring one back.
  void went_well();
  void slowed_down(Clock::time_point sent, std::chrono::milliseconds delay);
  int places() const;

  // Each request allows for a fifth of a second one, beyond the first hundred: takes one. False: the server
  // has enough to do with the first ones.
  bool take_retry();
  void sent_one();

  // How long reads of about that size take of late: the median, once a few are known.
  void took(std::size_t bytes, Clock::duration time);
  std::optional<Clock::duration> usual(std::size_t bytes) const;

  // A place for a second try beside the first, when everything speaks for one: there is room, nobody asked
  // for fewer, and it is one of few, since each has a buffer of its own.
  bool enter_hedge();
  void leave_hedge();

 private:
  static constexpr std::size_t kSizes = 40;   // powers of two
  static constexpr std::size_t kLatest = 32;  // reads of each
  struct Times {
    std::array<Clock::duration, kLatest> latest;
    std::size_t count = 0;
  };

  const int most_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  int places_;
  int in_flight_ = 0;
  int good_ = 0;  // since the places changed last
  Clock::time_point not_before_ = {};
  Clock::time_point halved_ = {};
  double retries_;
  int hedges_ = 0;
  std::array<Times, kSizes> times_ = {};
};

}  // namespace cairn::s3
