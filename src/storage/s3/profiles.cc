#include "storage/s3/profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cairn/error.h"

namespace cairn::s3 {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

// Up to a remark behind it, which has a space before its sign.
std::string_view without_remark(std::string_view value) {
  for (std::size_t i = 1; i < value.size(); ++i)
    if ((value[i] == '#' || value[i] == ';') && kBlank.find(value[i - 1]) != kBlank.npos)
      return trimmed(value.substr(0, i));
  return value;
}

// "profile research" of `profile  "research"`.
std::string section_name(std::string_view text) {
  const std::size_t space = text.find_first_of(kBlank);
  if (space == text.npos) return std::string(text);
  std::string_view last = trimmed(text.substr(space));
  if (last.size() >= 2 && (last[0] == '"' || last[0] == '\'') && last.back() == last[0])
    last = last.substr(1, last.size() - 2);
  return fmt::format("{} {}", text.substr(0, space), last);
}

// Reads the lines one by one; what it remembers is where a nested key would belong.
class ProfileReader {
 public:
  explicit ProfileReader(const std::string& path) : path_(path) {}

  void line(std::string_view whole) {
    ++number_;
    const std::string_view text = trimmed(whole);
    if (text.empty() || text[0] == '#' || text[0] == ';') return;
    const std::size_t indent = whole.find_first_not_of(kBlank);
    const bool nested = !key_.empty() && indent > indent_;
    if (text[0] == '[' && !nested) return section(text);
    if (nested && !parent_) return;  // a long value goes on: none that matters here is long
    pair(text, nested ? key_ + "." : "");
    if (!nested) indent_ = indent;
  }

  std::map<std::string, Profile> sections;

 private:
  void section(std::string_view text) {
    const std::size_t end = text.find(']');
    if (end == text.npos) fail("a section without its ']'");
    section_ = &sections[section_name(trimmed(text.substr(1, end - 1)))];
    key_.clear();
  }

  void pair(std::string_view text, const std::string& prefix) {
    const std::size_t equals = text.find('=');
    if (section_ == nullptr) fail("a setting before the first [section]");
    if (equals == text.npos || equals == 0) fail("neither [section] nor key = value");
    const std::string key = prefix + in_lower_case(trimmed(text.substr(0, equals)));
    const std::string_view value = without_remark(trimmed(text.substr(equals + 1)));
    (*section_)[key] = value;
    if (!prefix.empty()) return;
    key_ = key;
    parent_ = value.empty();
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", number_, what)).in_file(path_);
  }

  const std::string& path_;
  int number_ = 0;
  Profile* section_ = nullptr;
  std::string key_;         // the last one that is not nested
  std::size_t indent_ = 0;  // its own
  bool parent_ = false;     // it has no value
};

std::string file_path(const Surroundings& surroundings, const std::string& variable, std::string_view usual) {
  const std::string home = said(surroundings, "HOME").value_or("");
  std::string path = said(surroundings, variable).value_or(fmt::format("~/.aws/{}", usual));
  if (!path.starts_with("~/")) return path;
  return home.empty() ? "" : home + path.substr(1);
}

std::map<std::string, Profile> profiles_in(const Surroundings& surroundings, const std::string& path) {
  const auto text = path.empty() ? std::nullopt : surroundings.file(path);
  return text ? parse_profiles(*text, path) : std::map<std::string, Profile>();
}

// Keys are taken from one file whole: half a pair from each is nobody's.
void lay_over(Profile& profile, const Profile& credentials) {
  if (credentials.contains("aws_access_key_id"))
    for (const char* key : {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"})
      profile.erase(key);
  for (const auto& [key, value] : credentials) profile[key] = value;
}

}  // namespace

std::map<std::string, Profile> parse_profiles(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  ProfileReader reader(path);
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    reader.line(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return std::move(reader.sections);
}

ProfilePlace profile_place(const Surroundings& surroundings) {
  std::optional<std::string> name = said(surroundings, "AWS_PROFILE");
  if (!name) name = said(surroundings, "AWS_DEFAULT_PROFILE");
  return {name.value_or("default"), file_path(surroundings, "AWS_SHARED_CREDENTIALS_FILE", "credentials"),
          file_path(surroundings, "AWS_CONFIG_FILE", "config")};
}

Profile profile_in_use(const Surroundings& surroundings) {
  const ProfilePlace place = profile_place(surroundings);
  const auto config = profiles_in(surroundings, place.config_file);
  const auto credentials = profiles_in(surroundings, place.credentials_file);
  auto ours = config.find("profile " + place.name);
  if (ours == config.end() && place.name == "default") ours = config.find("default");
  const auto keys = credentials.find(place.name);
  if (ours == config.end() && keys == credentials.end() && place.name != "default")
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("AWS_PROFILE is '{}', and there is no [profile {}] in '{}' and no [{}] in '{}'",
                            place.name, place.name, place.config_file, place.name, place.credentials_file));
  Profile profile;
  if (ours != config.end()) profile = ours->second;
  if (keys != credentials.end()) lay_over(profile, keys->second);
  if (const auto named = profile.find("services"); named != profile.end())
    if (const auto services = config.find("services " + named->second); services != config.end())
      for (const auto& [key, value] : services->second) profile.try_emplace(key, value);
  return profile;
}

}  // namespace cairn::s3
