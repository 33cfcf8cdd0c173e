// HTTP over libcurl. Requests run on the thread that waits for them, many at once:
//
//   Http http({.ca_bundle = settings.ca_bundle});
//   Transfers transfers(http);
//   for (Exchange& exchange : exchanges) transfers.start(exchange);
//   while (Exchange* done = transfers.next()) look_at(*done);
//
// There is no thread of its own and no queue: a caller with four threads has four cores' worth of copying.
// What outlives a call are the connections, which the next one takes up again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::s3 {

struct HttpOptions {
  std::string ca_bundle = {};  // a file; empty: the system's
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  // A transfer that moves nothing for this long has failed.
  std::chrono::milliseconds silence = std::chrono::seconds(30);
};

// One request and what came back. Lives, and does not move, while it is under way.
struct Exchange {
  // To send.
  std::string method = "GET";
  std::string url = {};                                           // encoded already, sent as it is
  std::vector<std::pair<std::string, std::string>> headers = {};  // Content-Length is added
  std::vector<std::span<const std::byte>> body = {};              // sent in this order, from where it lies
  // A body of exactly this many bytes lands here when the status is 2xx; more than that fails. Empty: the
  // body is kept in `text`.
  std::span<std::byte> into = {};
  std::size_t most_text = 1 << 20;  // a longer text fails
  // Redirects are followed. Otherwise nobody is led to another host with our signature.
  bool follow = false;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  // What came back.
  enum class Outcome : std::uint8_t {
    kAnswered,     // whole; any status
    kUnreachable,  // no connection: nothing can have been carried out
    kBroken,       // the connection failed, was silent or was cut short: nobody knows what was carried out
    kUntrusted,    // TLS: the server is not who it should be
    kTooLong,      // headers or body beyond what was allowed
    kLate,         // the deadline passed
  };
  Outcome outcome = Outcome::kBroken;
  std::string why = {};  // for people, when it is not kAnswered
  int status = 0;
  std::vector<std::pair<std::string, std::string>> answer_headers =
      {};  // names in lower case; at most 64 KiB
  std::string text = {};
  std::uint64_t received = 0;  // bytes in `into`

  // The value of a header of the answer; empty when there is none.
  std::string_view header(std::string_view lower_case_name) const;
};

class Http {
 public:
  explicit Http(const HttpOptions& options = {});
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

 private:
  friend class Transfers;
  struct State;
  std::unique_ptr<State> state_;
};

// The requests that one thread has under way. Those that are when it is destroyed are broken off.
class Transfers {
 public:
  explicit Transfers(Http& http);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Begins it: at once, or not before that time.
  void start(Exchange& exchange, std::chrono::steady_clock::time_point not_before = {});
  // Breaks it off; next() will not return it.
  void stop(Exchange& exchange);
  // Waits until one has ended, or until that time; nullptr when none is under way or none has ended by then.
  Exchange* next(std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  std::size_t under_way() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::s3
