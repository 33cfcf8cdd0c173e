// A call as it goes out: where to, and signed.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "storage/s3/client.h"

namespace cairn::s3 {

// Where a bucket is, as far as is known: a server may say better.
struct Location {
  std::string endpoint;
  std::string region;
  bool bucket_in_path = true;
};

// Error(kInvalidArgument) for a bucket that cannot be one: it may become part of a host's name.
Location location_of(const Settings& settings, const std::string& bucket);
// The same bucket in that region; nullopt for what is no region's name, or the one that it is in already.
std::optional<Location> moved(const Location& location, const Settings& settings, std::string_view region);

struct Signer {
  const Settings& settings;
  const std::string& bucket;
  const Location& location;
  const Credentials* credentials;  // null: not signed
  std::chrono::system_clock::time_point now;
};

// Its method, URL, headers and body. `md5`: of its body; empty: none.
Exchange exchange_of(const Call& call, const Signer& signer, const std::string& md5);

}  // namespace cairn::s3
