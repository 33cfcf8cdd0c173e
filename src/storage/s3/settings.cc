#include "storage/s3/settings.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "cairn/error.h"
#include "storage/s3/sign.h"

namespace cairn::s3 {
namespace {

constexpr std::size_t kMostFileBytes = 1 << 20;

std::optional<std::string> file_here(const std::string& path) {
  // Also what is in a folder that we may not look into: HOME may be somebody else's.
  struct stat unused;
  if (::stat(path.c_str(), &unused) != 0) return std::nullopt;
  const auto refuse = [&](int why) {
    throw Error(ErrorCode::kIo, "cannot be read").in_file(path).with_errno(why);
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) refuse(errno);
  std::string text(kMostFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) refuse(errno);
  if (text.size() > kMostFileBytes)
    throw Error(ErrorCode::kLimit, fmt::format("more than {} bytes of settings", kMostFileBytes))
        .in_file(path);
  return text;
}

// A value, and who says so.
struct Saying {
  std::string value;
  std::string source;
};

[[noreturn]] void refuse_setting(const Saying& saying, std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {}", saying.source, why));
}

// The first of the variables, or else of the profile's keys.
std::optional<Saying> first_said(const Surroundings& surroundings, const Profile& profile,
                                 std::initializer_list<const char*> variables,
                                 std::initializer_list<const char*> keys) {
  for (const char* name : variables)
    if (auto value = said(surroundings, name)) return Saying{*value, name};
  for (const char* key : keys)
    if (const auto found = profile.find(key); found != profile.end() && !found->second.empty())
      return Saying{found->second, fmt::format("{} of AWS's config file", key)};
  return std::nullopt;
}

std::optional<bool> switched(const Surroundings& surroundings, const char* name) {
  const std::optional<std::string> value = said(surroundings, name);
  if (!value) return std::nullopt;
  if (*value != "0" && *value != "1") refuse_setting({*value, name}, "is neither 0 nor 1");
  return *value == "1";
}

// Its value is not in the message: it may have a password in it.
std::string checked_endpoint(const Saying& saying) {
  std::string url = saying.value;
  while (url.ends_with('/')) url.pop_back();
  const std::size_t host = url.starts_with("https://") ? 8 : 7;
  if (!url.starts_with("https://") && !url.starts_with("http://"))
    refuse_setting(saying, "does not begin with http:// or https://");
  if (url.find('@') != url.npos)
    refuse_setting(saying, "has an '@' in it: keys go into the environment, or a profile");
  // A path is signed and sent as it is.
  if (const std::size_t path = url.find_first_of("/?#", host); path != url.npos)
    if (percent_encoded(url.substr(path), true) != url.substr(path))
      refuse_setting(saying, "has a '?', '#', or what would have to be encoded, behind its host");
  const bool plain =
      std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c <= '~' && c != '\\'; });
  if (!plain || url.size() <= host || url[host] == '/')
    refuse_setting(saying, "is no URL like http://localhost:9000");
  return url;
}

std::string checked_region(const Saying& saying) {
  for (const char c : saying.value)
    if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_')
      refuse_setting(saying, "is no region: it has letters, digits and '-'");
  return saying.value;
}

bool path_style_of(const Surroundings& surroundings, const Profile& profile, bool own_endpoint) {
  if (const auto ours = switched(surroundings, "CAIRN_S3_PATH_STYLE")) return *ours;
  const auto style = first_said(surroundings, profile, {}, {"s3.addressing_style"});
  if (!style || style->value == "auto") return own_endpoint;
  if (style->value != "path" && style->value != "virtual")
    refuse_setting(*style, "is none of auto, path and virtual");
  return style->value == "path";
}

}  // namespace

Surroundings of_this_process() {
  return {[](const std::string& name) -> std::optional<std::string> {
            const char* value = std::getenv(name.c_str());
            return value == nullptr ? std::nullopt : std::optional<std::string>(value);
          },
          file_here};
}

std::optional<std::string> said(const Surroundings& surroundings, const std::string& name) {
  std::optional<std::string> value = surroundings.variable(name);
  return value && value->empty() ? std::nullopt : value;
}

std::string aws_endpoint(std::string_view service, std::string_view region) {
  const std::string_view place = region.empty() ? "us-east-1" : region;
  return fmt::format("https://{}.{}.amazonaws.com{}", service, place, place.starts_with("cn-") ? ".cn" : "");
}

Settings settings_of(const Surroundings& surroundings) {
  const Profile profile = profile_in_use(surroundings);
  Settings settings;
  if (const auto region = first_said(surroundings, profile, {"AWS_REGION", "AWS_DEFAULT_REGION"}, {"region"}))
    settings.region = checked_region(*region);
  const auto endpoint = first_said(surroundings, profile, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"},
                                   {"s3.endpoint_url", "endpoint_url"});
  settings.own_endpoint = endpoint.has_value();
  settings.endpoint = endpoint ? checked_endpoint(*endpoint) : aws_endpoint("s3", settings.region);
  settings.path_style = path_style_of(surroundings, profile, settings.own_endpoint);
  if (const auto bundle = first_said(surroundings, profile, {"AWS_CA_BUNDLE"}, {"ca_bundle"}))
    settings.ca_bundle = bundle->value;
  settings.unsigned_requests = switched(surroundings, "CAIRN_S3_UNSIGNED").value_or(false);
  settings.requester_pays = switched(surroundings, "CAIRN_S3_REQUESTER_PAYS").value_or(false);
  settings.content_md5 = switched(surroundings, "CAIRN_S3_CONTENT_MD5").value_or(false);
  return settings;
}

}  // namespace cairn::s3
