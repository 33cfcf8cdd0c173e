// What all connections of a loopback S3 server share, and one connection's requests and answers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "testing/s3_request.h"
#include "testing/s3_server.h"
#include "testing/s3_shelf.h"
#include "testing/s3_wire.h"

namespace cairn::loopback {

class Site {
 public:
  explicit Site(S3ServerOptions wanted);

  const S3ServerOptions options;
  Shelf shelf;

  void set_fault(std::function<S3Fault(const S3Request&)> fault);
  void set_keys(Keys keys);
  void set_clock_ahead(std::chrono::seconds ahead) { ahead_ = ahead.count(); }
  Clock::time_point now() const { return Clock::now() + std::chrono::seconds(ahead_); }

  // Counts it, numbers it, and says what is to go wrong.
  S3Fault begin(S3Request& request);
  void end() { --in_flight_; }
  void check(const Incoming& request) const;
  std::map<std::string, std::uint64_t> counts() const;
  void forget_counts();
  int most_in_flight() const;

  void stop();
  bool stopping() const { return stopping_; }
  void pause(std::chrono::microseconds time);  // shorter when the server stops

 private:
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::int64_t> ahead_ = 0;
  std::atomic<int> in_flight_ = 0;
  std::shared_ptr<const std::function<S3Fault(const S3Request&)>> fault_;
  Keys keys_;
  std::set<std::pair<std::string, std::string>> expired_;  // access keys with their tokens
  std::map<std::string, std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  int most_in_flight_ = 0;
};

// Answers requests until the connection ends.
void serve(Wire& wire, Site& site);

}  // namespace cairn::loopback
