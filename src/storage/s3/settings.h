// Where a bucket is and how it is spoken to, as the environment and the files of AWS's own tools say it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::s3 {

// What the settings are taken from: the process's own environment, or a test's.
struct Surroundings {
  std::function<std::optional<std::string>(const std::string& name)> variable;  // of the environment
  std::function<std::optional<std::string>(const std::string& path)> file;      // nullopt: not there
};
// Files of up to 1 MiB: Error(kLimit). Error(kIo) for one that is there and cannot be read.
Surroundings of_this_process();

// A variable that is set and not empty.
std::optional<std::string> said(const Surroundings& surroundings, const std::string& name);

struct Settings {
  std::string endpoint =
      {};  // "https://s3.eu-west-1.amazonaws.com"; may have a path, but no slash at its end
  bool own_endpoint = false;   // somebody named it: not AWS's, and so the bucket is part of the path
  bool path_style = false;     // http://host/bucket/key; otherwise http://bucket.host/key
  std::string region = {};     // empty: not said; "us-east-1" until a server says otherwise
  std::string ca_bundle = {};  // a file; empty: libcurl's own
  bool unsigned_requests = false;
  bool requester_pays = false;
  bool content_md5 = false;  // sends an MD5 with every body, at 2.4 s of processor time per GB
};

// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION, AWS_CA_BUNDLE, the profile's own,
// and cairn's: CAIRN_S3_UNSIGNED, CAIRN_S3_REQUESTER_PAYS, CAIRN_S3_PATH_STYLE, CAIRN_S3_CONTENT_MD5 ("1" or
// "0"). Error(kInvalidArgument), with the variable's or the file's name, for what makes no sense.
Settings settings_of(const Surroundings& surroundings);

// "https://s3.eu-west-1.amazonaws.com"; of no region, that of us-east-1.
std::string aws_endpoint(std::string_view service, std::string_view region);

// The keys of the profile that is in use (AWS_PROFILE, or "default"), from the credentials file over the
// config file. Nothing when there are no such files; Error(kInvalidArgument) when a profile that was asked
// for is missing. What is nested in the file has both names: "s3.addressing_style".
using Profile = std::map<std::string, std::string>;
Profile profile_in_use(const Surroundings& surroundings);

}  // namespace cairn::s3
