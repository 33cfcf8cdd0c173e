#include "save/spread.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace cairn {

std::vector<std::vector<std::size_t>> spread_items(const WriteItems& items,
                                                   const std::vector<std::uint64_t>& sizes, int files) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return sizes[a] > sizes[b]; });

  std::vector<std::vector<std::size_t>> spread(static_cast<std::size_t>(files));
  using Load = std::pair<std::uint64_t, std::size_t>;  // bytes so far, file
  std::priority_queue<Load, std::vector<Load>, std::greater<>> lightest;
  for (std::size_t file = 0; file < spread.size(); ++file) lightest.emplace(0, file);
  for (const std::size_t item : order) {
    const auto [bytes, file] = lightest.top();
    lightest.pop();
    spread[file].push_back(item);
    lightest.emplace(bytes + sizes[item], file);
  }
  const auto rank = [&](std::size_t i) { return std::pair(items.type(i) != WriteItemType::kByteIO, i); };
  for (auto& file : spread)
    std::sort(file.begin(), file.end(), [&](auto a, auto b) { return rank(a) < rank(b); });
  return spread;
}

}  // namespace cairn
