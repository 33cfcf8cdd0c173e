#include "near.h"

#include <algorithm>
#include <cstddef>

namespace cairn::cli {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b; `limit` + 1 if more.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  const std::size_t longer = std::max(a.size(), b.size());
  if (longer - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    std::size_t best = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
      best = std::min(best, row[j]);
    }
    if (best > limit) return limit + 1;
    before.swap(last);
    last.swap(row);
  }
  return std::min(last[b.size()], limit + 1);
}

bool ends_with_step(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.ends_with(end) && name[name.size() - end.size() - 1] == '.';
}

}  // namespace

std::vector<std::string_view> near_names(std::string_view typed,
                                         std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongest = 256;  // beyond, nobody typed it
  constexpr std::size_t kShown = 3;
  if (typed.empty() || typed.size() > kLongest) return {};
  const std::size_t limit = std::clamp<std::size_t>(typed.size() / 4, 1, 6);
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (const std::string_view name : candidates) {
    const std::size_t distance = ends_with_step(name, typed) ? 1 : edit_distance(typed, name, limit);
    if (distance <= limit) found.emplace_back(distance, name);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (const auto& [distance, name] : found)
    if (names.size() < kShown) names.push_back(name);
  return names;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates) {
  const std::vector<std::string_view> names = near_names(typed, candidates);
  if (names.empty()) return "";
  std::string text = ", did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += "'" + std::string(names[i]) + "'";
  }
  return text + "?";
}

}  // namespace cairn::cli
