#include "base/near_names.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

namespace cairn {
namespace {

constexpr std::size_t kMostLookedAt = 200'000;
constexpr std::size_t kLongestCompared = 512;

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

// "model.w" ends with the whole steps of "w".
bool is_dotted_suffix(std::string_view whole, std::string_view tail) {
  return whole.size() > tail.size() && !tail.empty() && whole.ends_with(tail) &&
         whole[whole.size() - tail.size() - 1] == '.';
}

// The number of insertions, removals and replacements between two names; nullopt above `most`. Only the
// diagonal band that can stay within `most` is filled in.
std::optional<std::size_t> distance(std::string_view a, std::string_view b, std::size_t most) {
  const std::size_t gap = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (gap > most || a.size() > kLongestCompared || b.size() > kLongestCompared) return std::nullopt;
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const std::size_t first = i > most ? i - most : 1;
    const std::size_t last = std::min(b.size(), i + most);
    std::size_t diagonal = row[first - 1];
    row[first - 1] = first == 1 ? i : most + 1;
    std::size_t best = row[first - 1];
    for (std::size_t j = first; j <= last; ++j) {
      const std::size_t above = j == i + most ? most + 1 : row[j];
      const std::size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, change});
      best = std::min(best, row[j]);
    }
    if (best > most) return std::nullopt;
  }
  if (row[b.size()] > most) return std::nullopt;
  return row[b.size()];
}

// Lower is nearer; nullopt is not near at all.
std::optional<std::size_t> badness(std::string_view wanted, std::string_view name, std::size_t most) {
  if (equal_ignoring_case(wanted, name)) return 0;
  if (is_dotted_suffix(name, wanted) || is_dotted_suffix(wanted, name)) return 1;
  const std::optional<std::size_t> mistakes = distance(wanted, name, most);
  if (!mistakes) return std::nullopt;
  return 1 + *mistakes;
}

}  // namespace

std::vector<std::string> near_names(std::string_view wanted, std::size_t count,
                                    const std::function<std::string_view(std::size_t)>& name_at,
                                    std::size_t most) {
  // A third of a short name may be wrong; long names differ in a few places only.
  const std::size_t mistakes = std::clamp<std::size_t>(wanted.size() / 3, 1, 4);
  std::vector<std::pair<std::size_t, std::size_t>> found;  // badness, position
  for (std::size_t i = 0; i < std::min(count, kMostLookedAt); ++i) {
    const std::optional<std::size_t> bad = badness(wanted, name_at(i), mistakes);
    if (!bad) continue;
    found.emplace_back(*bad, i);
    std::sort(found.begin(), found.end());
    if (found.size() > most) found.pop_back();
  }
  std::vector<std::string> names;
  for (const auto& [bad, position] : found) names.emplace_back(name_at(position));
  return names;
}

std::string did_you_mean(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = ", did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += "'" + names[i] + "'";
  }
  return text + "?";
}

}  // namespace cairn
