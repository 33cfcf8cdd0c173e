#include "engine/name_map.h"

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

}  // namespace

struct NameMap::Rules {
  std::vector<std::pair<std::regex, std::string>> all;
};

NameMap::NameMap(const std::vector<KeyRule>& rules) : rules_(std::make_unique<Rules>()) {
  for (const KeyRule& rule : rules) {
    try {
      rules_->all.emplace_back(std::regex(rule.pattern), in_ecmascript(rule.replacement));
    } catch (const std::regex_error& e) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is no regular expression: {}", rule.pattern, e.what()));
    }
  }
}

NameMap::~NameMap() = default;

std::string NameMap::operator()(std::string name) const {
  try {
    for (const auto& [pattern, replacement] : rules_->all)
      name = std::regex_replace(name, pattern, replacement);
  } catch (const std::regex_error& e) {
    throw Error(ErrorCode::kLimit, fmt::format("a regular expression takes too long: {}", e.what()))
        .of_tensor(name);
  }
  return name;
}

}  // namespace cairn

#pragma GCC diagnostic pop
