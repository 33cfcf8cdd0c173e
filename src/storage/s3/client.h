// Requests to one bucket: addressed, signed, sent again when that helps, and told as an Error when it does
// not.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.h"
#include "storage/s3/credentials.h"
#include "storage/s3/http.h"
#include "storage/s3/settings.h"
#include "storage/s3/sign.h"

namespace cairn::s3 {

// One call of S3's: what is asked, and the answer.
struct Call {
  std::string method = "GET";
  std::string key = {};  // plain; empty: the bucket itself
  Query query = {};
  Headers headers = {};  // x-amz-*, range, if-none-match, content-md5, ...: all are signed
  std::vector<std::span<const std::byte>> body = {};
  std::span<std::byte> into = {};  // as in Exchange; the whole of it has to come, with its Content-Range
  std::size_t most_text = 8 << 20;
  // Statuses that are answers to this call and no errors, besides 2xx: 404 of a look, 412 of a condition.
  std::vector<int> expected = {};

  // The answer.
  int status = 0;
  Headers answer_headers = {};
  std::string text = {};
  // Whether an earlier try of it may have been carried out, its answer lost: what a 412 or 404 means then,
  // the caller has to find out.
  bool sent_before = false;

  std::string_view header(std::string_view lower_case_name) const;
};

struct ClientOptions {
  Settings settings = {};
  std::chrono::milliseconds deadline = std::chrono::minutes(10);  // of one call, with all its tries
  int most_tries = 10;  // of one call; 4 while nobody was ever there to connect to
  std::chrono::milliseconds first_delay = std::chrono::milliseconds(100);  // doubles, with full jitter,
  std::chrono::milliseconds most_delay = std::chrono::seconds(20);         // up to this
  int most_in_flight = 128;  // of all threads together; fewer while the server asks for it
  std::chrono::milliseconds silence = std::chrono::seconds(30);
  // A read is asked a second time when it takes this many times the median of late; whoever answers first is
  // taken. 0: never.
  int hedge_after = 4;
};

// May be used by many threads at once: they share the connections, the credentials and the delay that a
// server has asked for. Retried are failed connections, answers cut short, 408, 429, 500, 502, 503, 504, and
// an <Error> inside a 200 of such a kind; a wrong clock and expired credentials once. All else fails at once:
//
//   404 kNotFound   412 kConflict   403 and others kIo (403: errno EACCES; QuotaExceeded: ENOSPC)
//   deadline or tries used up: kTimeout
//
// with bucket, key, S3's code, the request's id, and what to do about it. Never a secret.
class Client {
 public:
  Client(std::string bucket, ClientOptions options, Surroundings surroundings);
  ~Client();

  void call(Call& call);
  // All at once, as far as in-flight limits allow. When one fails for good the others are broken off, and its
  // Error is thrown.
  void call_all(std::span<Call> calls);

  const std::string& bucket() const;
  const Settings& settings() const;
  // "s3://bucket/key", as it stands in messages.
  std::string shown(std::string_view key) const;
  // By the server's clock, as of its last answer.
  std::chrono::system_clock::time_point server_time() const;
  // Requests sent so far, with all tries: what tests and benchmarks count.
  std::uint64_t requests() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::s3
