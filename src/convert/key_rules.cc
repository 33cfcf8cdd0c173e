// The rules for names that people write into a file.
#include <fmt/format.h>

#include <sstream>
#include <string>
#include <string_view>

#include "cairn/convert.h"
#include "cairn/error.h"
#include "storage/text_file.h"

namespace cairn {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

std::vector<KeyRule> read_key_rules(const std::string& url) {
  std::istringstream lines(read_text(url));
  std::vector<KeyRule> rules;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') continue;
    const std::size_t arrow = text.find("->");
    if (arrow == text.npos)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: a line is 'REGEX -> REPLACEMENT'", url, number));
    rules.push_back(
        {std::string(trimmed(text.substr(0, arrow))), std::string(trimmed(text.substr(arrow + 2)))});
  }
  return rules;
}

}  // namespace cairn
