// What all threads of a client share, and what a call does with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "storage/s3/client.h"
#include "storage/s3/per_process.h"
#include "storage/s3/request.h"
#include "storage/s3/retry.h"

namespace cairn::s3 {

// What was learnt of a server, and how fast it may be asked.
struct Learnt {
  Learnt(int most_in_flight, Location at) : pace(most_in_flight), location(std::move(at)) {}

  Pace pace;
  std::atomic<bool> answers = false;  // it has, once
  std::mutex mutex;
  Location location;
  std::chrono::seconds clock_ahead =
      {};  // for signatures: the server's clock against ours, once it complained
};

struct ClientState {
  ClientState(std::string its_bucket, ClientOptions its_options, Surroundings surroundings)
      : bucket(std::move(its_bucket)),
        options(std::move(its_options)),
        http({.ca_bundle = options.settings.ca_bundle, .silence = options.silence}),
        credentials(std::move(surroundings), options.settings, http),
        learnt([this, at = location_of(options.settings, bucket)] {
          return std::make_unique<Learnt>(options.most_in_flight, at);
        }) {}

  std::string shown(std::string_view key) const {
    return (bucket.empty() ? options.settings.endpoint : "s3://" + bucket) + (key.empty() ? "" : "/") +
           std::string(key);
  }

  const std::string bucket;
  const ClientOptions options;
  Http http;
  CredentialChain credentials;
  PerProcess<Learnt> learnt;
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::chrono::seconds> server_ahead = std::chrono::seconds(0);  // as of its last answer
};

// Sends them all, as many at once as may be, and fills in their answers.
void run_calls(ClientState& state, std::span<Call> calls);

}  // namespace cairn::s3
