// What an answer means: whether it is one, what to do next, and how to tell it to people.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/error.h"
#include "storage/s3/client.h"

namespace cairn::s3 {

// A server's words as they may stand in a message: ASCII that can be printed, and not more than that.
std::string printable(std::string_view text, std::size_t most);

enum class Verdict : std::uint8_t {
  kDone,
  kAgain,   // may go better next time
  kSlower,  // the same, and all requests are to wait
  kRenew,   // other credentials are needed
  kClock,   // the signature's time was wrong
  kRegion,  // the bucket is in `region`
  kLate,    // the deadline passed
  kFail,    // will not go better
};

struct Judgement {
  Verdict verdict = Verdict::kDone;
  bool maybe_done = false;  // the server may have carried it out all the same
  int status = 0;           // 0: there is no answer
  std::string code = {};    // S3's: "NoSuchKey"; empty when the answer had none
  std::string message = {};
  std::string request_id = {};
  std::string region = {};
  std::string why = {};  // what is wrong besides a status
  bool untrusted = false;
  bool too_long = false;
};

// `signed_in` is the region that it was signed for, with a session token or without.
Judgement judged(const Call& call, const Exchange& exchange, std::string_view signed_in, bool with_token);

// What stands in a message besides the answer.
struct ErrorContext {
  std::string shown;  // "s3://bucket/key"
  std::string endpoint;
  std::string region;
  std::string secret;  // not to be told: a server could repeat it
};
Error failure_of(const Call& call, const Judgement& judgement, const ErrorContext& context);
// The same when it was tried until it made no sense any more.
Error error_of_giving_up(const Call& call, const Judgement& last, const ErrorContext& context, int tries,
                         std::chrono::milliseconds time);

}  // namespace cairn::s3
