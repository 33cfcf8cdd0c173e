#include "convert/name_map.h"

// GCC 12 sees members of std::function that are not set inside std::regex, where they are.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <fmt/format.h>

#include <regex>
#include <utility>

#include "cairn/error.h"

namespace cairn {
namespace {

// Longer names are not tried: the time grows with the square of the length.
constexpr std::size_t kMostNameBytes = 4096;

// Without this flag libstdc++ tries one way after the other, deeper with every character: names come from
// files, and one of 64 KiB overflows the stack, one of thirty characters can take for ever.
#ifdef __GLIBCXX__
constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
constexpr auto kSyntax = std::regex::ECMAScript;
#endif

std::string problem_of(const std::regex_error& e) {
  if (e.code() == std::regex_constants::error_complexity)
    return "a pattern cannot refer to its own groups (a replacement can)";
  return e.what();
}

// "\1", as Python and sed write it, in the words of std::regex: "$1".
std::string in_ecmascript(std::string_view replacement) {
  std::string text;
  for (std::size_t i = 0; i < replacement.size(); ++i) {
    const bool group = replacement[i] == '\\' && i + 1 < replacement.size() && replacement[i + 1] >= '0' &&
                       replacement[i + 1] <= '9';
    text += group ? '$' : replacement[i];
  }
  return text;
}

[[noreturn]] void fail_too_long(const std::string& name) {
  throw Error(ErrorCode::kLimit,
              fmt::format("a name of {} bytes is too long to be changed by a pattern; {} are allowed",
                          name.size(), kMostNameBytes))
      .of_tensor(name.substr(0, 256));
}

}  // namespace

struct NameMap::Rules {
  std::vector<std::pair<std::regex, std::string>> all;
};

NameMap::NameMap(const std::vector<KeyRule>& rules) : rules_(std::make_unique<Rules>()) {
  for (const KeyRule& rule : rules) {
    try {
      rules_->all.emplace_back(std::regex(rule.pattern, kSyntax), in_ecmascript(rule.replacement));
    } catch (const std::regex_error& e) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is no regular expression: {}", rule.pattern, problem_of(e)));
    }
  }
}

NameMap::~NameMap() = default;

std::string NameMap::operator()(std::string name) const {
  try {
    for (const auto& [pattern, replacement] : rules_->all) {
      if (name.size() > kMostNameBytes) fail_too_long(name);
      name = std::regex_replace(name, pattern, replacement);
    }
  } catch (const std::regex_error& e) {
    throw Error(ErrorCode::kLimit, fmt::format("a regular expression takes too long: {}", e.what()))
        .of_tensor(name);
  }
  return name;
}

}  // namespace cairn

#pragma GCC diagnostic pop
