#include "storage/file_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "cairn/error.h"
#include "cairn/storage.h"

namespace cairn {
namespace {

constexpr std::string_view kSuffix = ".cairn-partial";
constexpr std::size_t kDigits = 16;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

void check_file_name(std::string_view name) {
  constexpr std::string_view kNever("/\0", 2);
  if (!name.empty() && name != "." && name != ".." && name.find_first_of(kNever) == name.npos) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is no name for a file", name.substr(0, 256)));
}

void check_steps(std::string_view relative) {
  bool good = !relative.empty() && relative.find('\0') == relative.npos;
  for (std::size_t begin = 0; good && begin <= relative.size();) {
    const std::size_t end = std::min(relative.find('/', begin), relative.size());
    const std::string_view step = relative.substr(begin, end - begin);
    good = !step.empty() && step != "." && step != "..";
    begin = end + 1;
  }
  if (good) return;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("'{}' is not a path inside the directory", relative.substr(0, 256)));
}

std::string partial_name(std::string_view name) {
  return fmt::format("{}.{:016x}{}", name, random_number(), kSuffix);
}

bool is_partial(std::string_view name) {
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  if (name.size() < kDigits + 2 || name[name.size() - kDigits - 1] != '.') return false;
  return std::all_of(name.end() - kDigits, name.end(), is_hex);
}

std::string final_name_of(std::string_view name) {
  if (is_partial(name)) name.remove_suffix(kSuffix.size() + kDigits + 1);
  return std::string(name);
}

}  // namespace cairn
