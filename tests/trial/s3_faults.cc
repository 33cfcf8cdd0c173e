#include "s3_faults.h"

namespace cairn {
namespace {

constexpr int kLatePercent = 10;  // of seeds: those take long

bool may_hold_an_error(const std::string& kind) {
  return kind == "CopyObject" || kind == "CompleteMultipartUpload" || kind == "DeleteObjects";
}

}  // namespace

std::string_view name_of(S3Wrong wrong) {
  constexpr std::array<std::string_view, kS3Wrongs> kNames = {
      "dropped",      "answer_lost", "refused", "done_and_refused", "slow_down", "truncated", "wrong_range",
      "error_in_200", "slow_body",   "twice",   "delayed",          "late"};
  return kNames[static_cast<std::size_t>(wrong)];
}

S3Faults::S3Faults(sim::Random random) : random_(random) {
  constexpr std::array<int, 5> kPercents = {1, 3, 8, 20, 40};
  percent_ = kPercents[random_.below(kPercents.size())];
  for (bool& kind : kinds_) kind = random_.chance(50);
  kinds_[random_.below(kS3Wrongs - 1)] = true;
  kinds_[static_cast<std::size_t>(S3Wrong::kLate)] = random_.chance(kLatePercent);
  storms_ = random_.chance(40);
}

void S3Faults::start() {
  const std::lock_guard lock(mutex_);
  on_ = true;
  constexpr std::array<int, 4> kBudgets = {5, 20, 60, 300};
  budget_ = kBudgets[random_.below(kBudgets.size())];
  calm_ = random_.between(0, 60);
  storm_ = storms_ ? random_.between(5, 80) : 0;
  in_storm_ = static_cast<S3Wrong>(random_.below(static_cast<std::uint64_t>(S3Wrong::kTruncated)));
}

void S3Faults::stop() {
  const std::lock_guard lock(mutex_);
  on_ = false;
}

S3Fault S3Faults::next(const S3Request& request) {
  const std::lock_guard lock(mutex_);
  if (!on_ || budget_ == 0) return {};
  std::size_t wrong = random_.below(kS3Wrongs);
  if (calm_ > 0) {
    --calm_;
  } else if (storm_ > 0) {
    --storm_;
    return make(in_storm_, request);
  }
  if (!random_.chance(percent_)) return {};
  while (!kinds_[wrong]) wrong = (wrong + 1) % kS3Wrongs;
  return make(static_cast<S3Wrong>(wrong), request);
}

S3Fault S3Faults::make(S3Wrong wrong, const S3Request& request) {
  constexpr std::array<int, 6> kStatuses = {500, 502, 503, 504, 408, 429};
  const auto milliseconds = [&](int least, int most) {
    return std::chrono::milliseconds(random_.between(least, most));
  };
  S3Fault fault;
  switch (wrong) {
    case S3Wrong::kDropped:
    case S3Wrong::kAnswerLost: fault.drop = true; break;
    case S3Wrong::kRefused:
    case S3Wrong::kDoneAndRefused: fault.status = kStatuses[random_.below(kStatuses.size())]; break;
    case S3Wrong::kSlowDown: fault.status = 503; break;
    case S3Wrong::kTruncated:
      if (request.method == "HEAD" || request.method == "DELETE") return {};
      fault.truncate = random_.below(200);
      break;
    case S3Wrong::kWrongRange:
      if (!request.headers.contains("range")) return {};
      fault.wrong_range = true;
      break;
    case S3Wrong::kErrorIn200:
      if (!may_hold_an_error(request.kind)) return {};
      fault.status = 200;
      fault.carried_out = random_.chance(50);
      break;
    case S3Wrong::kSlowBody:
      if (request.method != "GET") return {};
      fault.bytes_per_second = 200'000;
      break;
    case S3Wrong::kTwice: fault.twice = true; break;
    case S3Wrong::kDelayed: fault.delay = milliseconds(1, 20); break;
    case S3Wrong::kLate: fault.delay = kLateness; break;
  }
  if (wrong == S3Wrong::kAnswerLost || wrong == S3Wrong::kDoneAndRefused) fault.carried_out = true;
  --budget_;
  ++counts_[static_cast<std::size_t>(wrong)];
  return fault;
}

std::array<std::uint64_t, kS3Wrongs> S3Faults::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace cairn
