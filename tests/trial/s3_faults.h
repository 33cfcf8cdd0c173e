// What goes wrong with a server, as a seed says: which kinds of faults, how often, and how many of them in
// all.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "random.h"
#include "testing/s3_server.h"

namespace cairn {

enum class S3Wrong : std::uint8_t {
  kDropped,     // the connection ends, and nothing was done
  kAnswerLost,  // it was done, and the connection ends
  kRefused,     // 500, 502, 503, 504, 408 or 429, and nothing was done
  kDoneAndRefused,
  kSlowDown,    // 503 SlowDown
  kTruncated,   // the body ends too early
  kWrongRange,  // Content-Range says another place
  kErrorIn200,  // where S3 is known for it
  kSlowBody,
  kTwice,  // carried out two times
  kDelayed,
  kLate,  // carried out when the client does not wait for it any more
};
inline constexpr std::size_t kS3Wrongs = 12;
std::string_view name_of(S3Wrong wrong);

class S3Faults {
 public:
  explicit S3Faults(sim::Random random);

  // From now on with a new budget; for good: until stop().
  void start();
  void stop();
  S3Fault next(const S3Request& request);  // by many threads at once

  bool has_late() const { return kinds_[static_cast<std::size_t>(S3Wrong::kLate)]; }
  std::array<std::uint64_t, kS3Wrongs> counts() const;

  // How long a client waits for a silent server, and how late kLate is.
  static constexpr std::chrono::milliseconds kSilence{250};
  static constexpr std::chrono::milliseconds kLateness{350};

 private:
  S3Fault make(S3Wrong wrong, const S3Request& request);

  mutable std::mutex mutex_;
  sim::Random random_;
  std::array<bool, kS3Wrongs> kinds_{};
  int percent_ = 0;
  bool storms_ = false;
  bool on_ = false;
  int budget_ = 0;
  int calm_ = 0;   // requests until a storm begins
  int storm_ = 0;  // requests that it lasts
  S3Wrong in_storm_ = S3Wrong::kSlowDown;
  std::array<std::uint64_t, kS3Wrongs> counts_{};
};

}  // namespace cairn
