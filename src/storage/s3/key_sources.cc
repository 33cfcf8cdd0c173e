// Keys from this machine: the environment and the files of AWS's tools.
#include "storage/s3/key_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "storage/s3/profiles.h"

namespace cairn::s3 {
namespace {

std::string key_of(const Profile& profile, const std::string& name) {
  const auto found = profile.find(name);
  return found == profile.end() ? "" : found->second;
}

// What other tools get keys by, in a profile.
constexpr std::array kOtherWays = {"credential_process", "sso_session", "sso_start_url", "login_session",
                                   "role_arn"};

void refuse_other_ways(const Profile& profile, const ProfilePlace& place) {
  for (const char* way : kOtherWays)
    if (!key_of(profile, way).empty())
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("profile '{}' gets its keys by {}, which cairn does not do. Have AWS's command do it: "
                      "eval \"$(aws configure export-credentials --profile '{}' --format env)\"",
                      place.name, way, place.name));
}

}  // namespace

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; });
}

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

Credentials checked_keys(Credentials keys, ErrorCode code, std::string_view who) {
  const auto refuse = [&](std::string_view what) { throw Error(code, fmt::format("{}: {}", who, what)); };
  if (keys.access_key.empty()) refuse("no access key");
  if (keys.secret_key.empty()) refuse("no secret key");
  if (!is_visible(keys.access_key))
    refuse("the access key has a space, a line break or another odd character in it");
  if (has_controls(keys.secret_key))
    refuse("the secret key has a line break or another control character in it");
  if (!is_visible(keys.session_token))
    refuse("the session token has a space, a line break or another odd character in it");
  return keys;
}

FoundKeys environment_keys(const KeyAsker& asker) {
  const auto access = said(asker.surroundings, "AWS_ACCESS_KEY_ID");
  const auto secret = said(asker.surroundings, "AWS_SECRET_ACCESS_KEY");
  if (!access && !secret) return {.why_none = "AWS_ACCESS_KEY_ID is not set"};
  if (!access || !secret)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is set and {} is not", access ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                            access ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID"));
  Credentials keys{*access, *secret, said(asker.surroundings, "AWS_SESSION_TOKEN").value_or(""), {}};
  return {.keys = checked_keys(std::move(keys), ErrorCode::kInvalidArgument,
                               "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN")};
}

FoundKeys web_identity_keys(const KeyAsker& asker) {
  const auto file = said(asker.surroundings, "AWS_WEB_IDENTITY_TOKEN_FILE");
  if (!file) return {.why_none = "AWS_WEB_IDENTITY_TOKEN_FILE is not set"};
  const auto role = said(asker.surroundings, "AWS_ROLE_ARN");
  if (!role)
    throw Error(ErrorCode::kInvalidArgument, "AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not");
  return {.keys = assume_role(
              asker, {*role, *file, said(asker.surroundings, "AWS_ROLE_SESSION_NAME").value_or("")})};
}

FoundKeys profile_keys(const KeyAsker& asker) {
  const ProfilePlace place = profile_place(asker.surroundings);
  const Profile profile = profile_in_use(asker.surroundings);
  const std::string who =
      fmt::format("profile '{}' in '{}' and '{}'", place.name, place.credentials_file, place.config_file);
  if (profile.contains("aws_access_key_id") || profile.contains("aws_secret_access_key"))
    return {.keys = checked_keys({key_of(profile, "aws_access_key_id"),
                                  key_of(profile, "aws_secret_access_key"),
                                  key_of(profile, "aws_session_token"),
                                  {}},
                                 ErrorCode::kInvalidArgument, who)};
  const std::string role = key_of(profile, "role_arn"), file = key_of(profile, "web_identity_token_file");
  if (!role.empty() && !file.empty())
    return {.keys = assume_role(asker, {role, file, key_of(profile, "role_session_name")})};
  refuse_other_ways(profile, place);
  return {.why_none = who + " has no keys"};
}

}  // namespace cairn::s3
