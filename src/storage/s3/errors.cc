#include "storage/s3/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "storage/s3/digest.h"
#include "storage/s3/xml.h"

namespace cairn::s3 {
namespace {

constexpr auto kMostSkew = std::chrono::minutes(10);  // servers refuse 15

struct Advice {
  std::string_view code;
  std::string_view what_to_do;  // {} is the region
};

constexpr std::array kAdvice = {
    Advice{"SignatureDoesNotMatch", "check the secret key, the region (\"{}\") and this machine's clock"},
    Advice{"InvalidAccessKeyId", "the server does not know this access key: check it, and the endpoint"},
    Advice{"AccessDenied", "these credentials may not do this here: check the bucket's policy and the keys"},
    Advice{"RequestTimeTooSkewed", "this machine's clock and the server's differ: set the clock"},
    Advice{"ExpiredToken", "the session's token has expired: get new credentials"},
    Advice{"InvalidToken", "the session's token is not valid: get new credentials"},
    Advice{"NoSuchBucket", "there is no such bucket: check its name and the endpoint"},
    Advice{"NoSuchKey", "there is no such object"},
    Advice{"NoSuchUpload", "there is no such upload: it was completed or aborted"},
    Advice{"PreconditionFailed", "the object is not what the condition asks for"},
    Advice{"ConditionalRequestConflict", "another request for the same object was under way"},
    Advice{"PermanentRedirect", "the bucket is in another region: set AWS_REGION and the endpoint"},
    Advice{"TemporaryRedirect", "the bucket is in another region: set AWS_REGION and the endpoint"},
    Advice{"AuthorizationHeaderMalformed", "it was signed for region \"{}\": set AWS_REGION"},
    Advice{"QuotaExceeded", "the bucket or its owner has no more room: remove objects or raise the quota"},
    Advice{"EntityTooSmall", "a part of an upload is smaller than the server takes"},
    Advice{"EntityTooLarge", "the object or part is larger than the server takes"},
    Advice{"InvalidRange", "the object is shorter than what was asked for"},
    Advice{"MissingContentLength",
           "something between here and the server removes Content-Length: check proxies"},
    Advice{"SlowDown", "the server is asked too much"},
};

std::string advice_of(const Judgement& judgement, const ErrorContext& context) {
  for (const Advice& advice : kAdvice)
    if (advice.code == judgement.code) return fmt::format(fmt::runtime(advice.what_to_do), context.region);
  if (!judgement.code.empty()) return "";
  if (judgement.status == 301 || judgement.status == 307)
    return "the bucket is in another region: set AWS_REGION and the endpoint";
  if (judgement.status == 403)
    return "check the keys, the bucket's policy, the region and this machine's clock";
  if (judgement.status == 404) return "there is no such object or bucket";
  return "";
}

bool is_one_of(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

// Fills in what a server says in XML: <Error><Code>...; false when it says nothing of the kind.
bool read_error(std::string_view text, Judgement& judgement) {
  if (text.substr(0, 4096).find("<Error") == std::string_view::npos) return false;
  try {
    const XmlElement error = parse_xml(text);
    if (error.name != "Error") return false;
    judgement.code = printable(error.text_of("Code"), 64);
    judgement.message = error.text_of("Message");
    judgement.region = error.text_of("Region");
    if (judgement.request_id.empty()) judgement.request_id = printable(error.text_of("RequestId"), 80);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A POST and a copy begin their answer before they know how it ends.
bool may_fail_late(const Call& call) {
  if (call.method == "POST") return true;
  const auto is_copy = [](const auto& header) { return header.first == "x-amz-copy-source"; };
  return std::any_of(call.headers.begin(), call.headers.end(), is_copy);
}

// What is wrong with the bytes that came; empty: nothing.
std::string wrong_bytes(const Call& call, const Exchange& exchange) {
  const auto range = std::find_if(call.headers.begin(), call.headers.end(),
                                  [](const auto& header) { return header.first == "range"; });
  if (range != call.headers.end()) {
    std::string_view asked = range->second;
    if (asked.starts_with("bytes=")) asked.remove_prefix(6);
    const std::string_view came = exchange.header("content-range");
    // A whole object is what was asked for when it begins where that does: then its length says the rest.
    const bool whole = exchange.status == 200 && came.empty() && asked.starts_with("0-");
    if (!whole && (exchange.status != 206 || !came.starts_with(fmt::format("bytes {}/", asked))))
      return fmt::format("asked for bytes {}, the server sent {}", asked,
                         came.empty() ? "the whole object" : "\"" + printable(came, 80) + "\"");
  }
  if (exchange.received != call.into.size())
    return fmt::format("{} bytes came where {} were asked for", exchange.received, call.into.size());
  return {};
}

bool clock_is_wrong(const Exchange& exchange) {
  const auto date = time_of_http(exchange.header("date"));
  if (!date) return false;
  const auto off = *date - std::chrono::system_clock::now();
  return off > kMostSkew || off < -kMostSkew;
}

Verdict verdict_of(const Judgement& j, const Call& call, const Exchange& exchange, std::string_view signed_in,
                   bool with_token) {
  const bool bare = call.method == "HEAD";  // there is no code in the answer
  if (j.status == 503 || j.status == 429 || is_one_of(j.code, {"SlowDown", "Throttling", "TooManyRequests"}))
    return Verdict::kSlower;
  if (j.status == 500 || j.status == 502 || j.status == 504 || j.status == 408 ||
      is_one_of(j.code, {"InternalError", "RequestTimeout", "ServiceUnavailable", "Busy"}))
    return Verdict::kAgain;
  if (is_one_of(j.code, {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}) ||
      (bare && j.status == 400 && with_token && j.region.empty()))
    return Verdict::kRenew;
  if (j.code == "RequestTimeTooSkewed" || (bare && j.status == 403 && clock_is_wrong(exchange)))
    return Verdict::kClock;
  if ((j.status == 301 || j.status == 307 || j.status == 400) && !j.region.empty() && j.region != signed_in)
    return Verdict::kRegion;
  return Verdict::kFail;
}

Judgement without_answer(const Call& call, const Exchange& exchange) {
  using Outcome = Exchange::Outcome;
  Judgement j = {.why = printable(exchange.why, 300)};
  j.maybe_done = exchange.outcome != Outcome::kUnreachable && exchange.outcome != Outcome::kUntrusted;
  j.untrusted = exchange.outcome == Outcome::kUntrusted;
  j.too_long = exchange.outcome == Outcome::kTooLong;
  // Another place of the object than was asked for may be longer; a server that knows no ranges stays so.
  const bool other_range = j.too_long && !call.into.empty() && exchange.status == 206;
  if (exchange.outcome == Outcome::kLate)
    j.verdict = Verdict::kLate;
  else
    j.verdict = (j.too_long && !other_range) || j.untrusted ? Verdict::kFail : Verdict::kAgain;
  return j;
}

ErrorCode error_code_of(const Judgement& j) {
  if (j.too_long) return ErrorCode::kLimit;
  if (j.status == 404 || j.code == "NoSuchBucket" || j.code == "NoSuchKey" || j.code == "NoSuchUpload")
    return ErrorCode::kNotFound;
  if (j.status == 412 || j.code == "ConditionalRequestConflict") return ErrorCode::kConflict;
  return ErrorCode::kIo;
}

// "GET was answered with 404 NoSuchKey (request 123): there is no such object"
std::string sentence(const Call& call, const Judgement& j, const ErrorContext& context) {
  if (j.status == 0) {
    const std::string_view advice =
        j.untrusted ? "; AWS_CA_BUNDLE names a file with the certificates to trust" : "";
    return fmt::format("{} at {} failed: {}{}", call.method, context.endpoint, j.why, advice);
  }
  std::string text = fmt::format("{} at {} was answered with {}", call.method, context.endpoint, j.status);
  if (!j.code.empty()) text += " " + j.code;
  const bool tells = !context.secret.empty() && j.message.find(context.secret) != std::string::npos;
  std::vector<std::string> more;
  if (!j.message.empty() && !tells) more.push_back("\"" + printable(j.message, 200) + "\"");
  if (!j.request_id.empty()) more.push_back("request " + j.request_id);
  if (!more.empty()) text += fmt::format(" ({})", fmt::join(more, ", "));
  if (!j.why.empty()) text += ": " + j.why;
  if (const std::string advice = advice_of(j, context); !advice.empty()) text += ": " + advice;
  return text;
}

Error with_place(Error error, const Judgement& j, const ErrorContext& context) {
  if (j.code == "QuotaExceeded" || j.status == 507)
    error.with_errno(ENOSPC);
  else if (j.status == 403)
    error.with_errno(EACCES);
  return error.in_file(context.shown);
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = c == '\n' || c == '\t' || c == '\r' ? ' ' : '?';
  return text.size() > most ? out + "..." : out;
}

Judgement judged(const Call& call, const Exchange& exchange, std::string_view signed_in, bool with_token) {
  if (exchange.outcome != Exchange::Outcome::kAnswered) return without_answer(call, exchange);
  Judgement j = {.status = exchange.status};
  if (std::find(call.expected.begin(), call.expected.end(), j.status) != call.expected.end()) return j;
  j.request_id = printable(exchange.header("x-amz-request-id"), 80);
  const bool good = j.status / 100 == 2;
  const bool error = (!good || may_fail_late(call)) && read_error(exchange.text, j);
  if (const std::string_view region = exchange.header("x-amz-bucket-region"); !region.empty())
    j.region = region;
  if (!good || error) {
    j.verdict = verdict_of(j, call, exchange, signed_in, with_token);
    j.maybe_done = j.status >= 500 || j.status == 408 || good;
  } else if (!call.into.empty()) {
    j.why = wrong_bytes(call, exchange);
    if (!j.why.empty()) j.verdict = Verdict::kAgain;
  }
  return j;
}

Error failure_of(const Call& call, const Judgement& judgement, const ErrorContext& context) {
  return with_place(Error(error_code_of(judgement), sentence(call, judgement, context)), judgement, context);
}

Error error_of_giving_up(const Call& call, const Judgement& last, const ErrorContext& context, int tries,
                         std::chrono::milliseconds time) {
  const std::string_view endpoint_hint =
      last.status == 0 && !last.maybe_done ? "; is the endpoint right, and the server running?" : "";
  return with_place(Error(ErrorCode::kTimeout,
                          fmt::format("gave up after {} {} in {:.1f} s: {}{}", tries,
                                      tries == 1 ? "try" : "tries", static_cast<double>(time.count()) / 1000,
                                      sentence(call, last, context), endpoint_hint)),
                    last, context);
}

}  // namespace cairn::s3
