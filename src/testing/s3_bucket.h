// A bucket of a loopback server, as the storage layer sees it.
//
//   S3Server server;
//   auto files = s3::bucket_folder(bucket_at(server), "run/step-1/");
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "storage/s3/bucket.h"
#include "testing/s3_server.h"

namespace cairn {

inline std::shared_ptr<s3::Bucket> bucket_at(const S3Server& server, s3::ClientOptions options = {}) {
  s3::Settings& said = options.settings;
  said.endpoint = server.endpoint();
  said.own_endpoint = said.path_style = said.unsigned_requests = true;
  said.ca_bundle = server.ca_bundle();
  options.first_delay = std::chrono::milliseconds(1);
  const auto nothing = [](const std::string&) { return std::nullopt; };
  return std::make_shared<s3::Bucket>("bucket", std::move(options), s3::Surroundings{nothing, nothing});
}

}  // namespace cairn
