// The files of AWS's tools: ~/.aws/config and ~/.aws/credentials.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "storage/s3/settings.h"

namespace cairn::s3 {

// The sections of a file by their names as they stand there, with single spaces and no quotes: "default",
// "profile research". Names of keys are in lower case; a key below another one that has no value of its own
// is "s3.endpoint_url". Error(kInvalidArgument), with the line's number and nothing of what it says.
std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& path);

// What is looked up, and where.
struct ProfilePlace {
  std::string name;              // "default" unless AWS_PROFILE says another one
  std::string credentials_file;  // empty: nowhere, for want of a HOME
  std::string config_file;
};
ProfilePlace profile_place(const Surroundings& surroundings);

}  // namespace cairn::s3
