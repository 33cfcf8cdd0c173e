// The places that keys come from. Each is asked anew every time; what is kept, and for how long, is the
// chain's matter (credentials.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cairn/error.h"
#include "storage/s3/credentials.h"
#include "storage/s3/http.h"
#include "storage/s3/settings.h"

namespace cairn::s3 {

// What a place gave. One that is not there, or not meant for us, says why: "AWS_ACCESS_KEY_ID is not set".
struct FoundKeys {
  std::optional<Credentials> keys = {};
  std::string why_none = {};
};

struct KeyAsker {
  const Surroundings& surroundings;
  const std::string& region;
  Http& http;
};

// All of them: Error(kInvalidArgument) for half of what they need, Error(kIo) for an answer that is none,
// Error(kUnsupported) for what cairn does not do.
FoundKeys environment_keys(const KeyAsker& asker);
FoundKeys web_identity_keys(const KeyAsker& asker);
FoundKeys profile_keys(const KeyAsker& asker);  // its keys, or its web identity
FoundKeys container_keys(const KeyAsker& asker);
FoundKeys instance_keys(const KeyAsker& asker);  // IMDSv2

// A role that is taken on with a token from a file, which others renew.
struct WebIdentity {
  std::string role;
  std::string token_file;
  std::string session = {};  // empty: "cairn"
};
Credentials assume_role(const KeyAsker& asker, const WebIdentity& identity);

// Where the container's keys are: nullopt when nobody says. Error(kInvalidArgument) for http to any place but
// this machine and AWS's own link-local addresses: what is sent there is a secret.
std::optional<std::string> container_url(const Surroundings& surroundings);

// Visible characters of ASCII alone: what may stand in a URL or be a token.
bool is_visible(std::string_view text);
bool has_controls(std::string_view text);  // line breaks and their kind

// Throws when what `who` gave cannot be sent in a header, or is not there.
Credentials checked_keys(Credentials keys, ErrorCode code, std::string_view who);

}  // namespace cairn::s3
