// A client of a loopback server, for tests of calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "storage/s3/client.h"
#include "testing/s3_server.h"
#include "testing/s3_surroundings.h"

namespace cairn::s3 {

inline std::span<const std::byte> body_of(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::span<std::byte> space_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

// A client of a server, with keys that it takes and delays that a test has time for.
struct TestClient {
  explicit TestClient(const S3Server& server, ClientOptions options = {})
      : TestClient(server.endpoint(), std::move(options), server.ca_bundle()) {}
  TestClient(const std::string& endpoint, ClientOptions options, const std::string& ca_bundle = "") {
    options.settings.endpoint = endpoint;
    options.settings.own_endpoint = true;
    options.settings.path_style = endpoint.find("s3.localhost") == std::string::npos;
    options.settings.ca_bundle = ca_bundle;
    if (options.first_delay == ClientOptions().first_delay)
      options.first_delay = std::chrono::milliseconds(1);
    if (options.most_delay == ClientOptions().most_delay) options.most_delay = std::chrono::milliseconds(5);
    // On a busy machine any read may be slow, and one that is hedged is one request more than a test counts.
    if (options.hedge_after == ClientOptions().hedge_after) options.hedge_after = 0;
    client = std::make_unique<Client>("bucket", options, surroundings.all());
  }

  Client* operator->() const { return client.get(); }

  FakeSurroundings surroundings = {
      .variables = {{"AWS_ACCESS_KEY_ID", "the-key"}, {"AWS_SECRET_ACCESS_KEY", "the-secret"}}, .files = {}};
  std::unique_ptr<Client> client;
};

inline S3ServerOptions with_keys() { return {.access_key = "the-key", .secret_key = "the-secret"}; }

inline Call get_of(const std::string& key, std::uint64_t offset, std::span<std::byte> into) {
  Call call = {.key = key, .into = into};
  const std::uint64_t last = offset + into.size() - 1;
  call.headers.emplace_back("range", "bytes=" + std::to_string(offset) + "-" + std::to_string(last));
  return call;
}

inline Call put_of(const std::string& key, std::string_view text) {
  return {.method = "PUT", .key = key, .body = {body_of(text)}};
}

// The first so many requests meet that fault, the others none.
inline void first_ones_meet(S3Server& server, std::uint64_t count, const S3Fault& fault) {
  const std::uint64_t before = server.requests();
  server.set_fault([=](const S3Request& r) { return r.number <= before + count ? fault : S3Fault(); });
}

}  // namespace cairn::s3
