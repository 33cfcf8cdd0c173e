#include "plan/chunk_index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace cairn {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

// Sorts by the upper 32 bits; three passes of 11 digits.
void radix_sort(PodVector<std::uint64_t>& keys) {
  constexpr unsigned kBits = 11;
  PodVector<std::uint64_t> other;
  other.extend(keys.size());
  for (unsigned shift = 32; shift < 64; shift += kBits) {
    std::vector<std::size_t> at((1U << kBits) + 1, 0);
    for (const std::uint64_t key : keys) ++at[((key >> shift) & ((1U << kBits) - 1)) + 1];
    std::partial_sum(at.begin(), at.end(), at.begin());
    for (const std::uint64_t key : keys) other[at[(key >> shift) & ((1U << kBits) - 1)]++] = key;
    std::swap(keys, other);
  }
}

// Where a dimension's begins lie, and which bits of them the curve takes.
struct Scale {
  std::size_t dim;
  std::int64_t least;
  unsigned shift;
};

// Spreads eight bits to every step-th place.
std::vector<std::uint64_t> spread_table(std::size_t step) {
  std::vector<std::uint64_t> table(256, 0);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    for (std::size_t bit = 0; bit < 8 && bit * step < 64; ++bit)
      table[byte] |= ((byte >> bit) & 1) << (bit * step);
  }
  return table;
}

// The dimensions that are cut. All begins are 0 or more.
std::vector<Scale> cut_dimensions(std::span<const Box> chunks, std::size_t rank) {
  std::vector<std::int64_t> least(rank, kMax);
  std::vector<std::int64_t> greatest(rank, 0);
  for (const Box& chunk : chunks) {
    const std::int64_t* begins = chunk.offsets.data();
    for (std::size_t d = 0; d < rank; ++d) {
      least[d] = std::min(least[d], begins[d]);
      greatest[d] = std::max(greatest[d], begins[d]);
    }
  }
  std::vector<Scale> scales;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto range = static_cast<std::uint64_t>(greatest[d] - least[d]);
    if (range > 0) scales.push_back({d, least[d], static_cast<unsigned>(64 - __builtin_clzll(range))});
  }
  return scales;
}

}  // namespace

ChunkIndex::ChunkIndex(std::span<const Box> chunks) : chunks_(chunks) {
  if (chunks.empty()) return;
  rank_ = chunks[0].rank();
  sort_by_curve();
  build();
  visits_left_ = 8 * (chunks.size() + 10'000);
}

// Interleaves the leading bits of the begins, so that chunks whose numbers start alike lie in one cell.
// Dimensions that are not cut have no say.
void ChunkIndex::sort_by_curve() {
  std::vector<Scale> scales = cut_dimensions(chunks_, rank_);
  if (scales.size() > 32) scales.resize(32);
  const auto bits = static_cast<unsigned>(scales.empty() ? 0 : 32 / scales.size());
  for (Scale& scale : scales) scale.shift = scale.shift > bits ? scale.shift - bits : 0;
  const std::vector<std::uint64_t> spread = spread_table(scales.size());

  PodVector<std::uint64_t> keys;
  keys.extend(chunks_.size());
  bool sorted = true;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const std::int64_t* begins = chunks_[i].offsets.data();
    std::uint64_t curve = 0;
    for (std::size_t s = 0; s < scales.size(); ++s) {
      const Scale& scale = scales[s];
      std::uint64_t cell = static_cast<std::uint64_t>(begins[scale.dim] - scale.least) >> scale.shift;
      for (std::size_t at = s; cell != 0; cell >>= 8, at += 8 * scales.size())
        curve |= spread[cell & 255] << at;
    }
    keys[i] = curve << 32 | i;
    sorted = sorted && (i == 0 || keys[i - 1] <= keys[i]);
  }
  if (!sorted) radix_sort(keys);
  order_.extend(chunks_.size());
  for (std::size_t i = 0; i < chunks_.size(); ++i) order_[i] = static_cast<std::uint32_t>(keys[i]);
}

// Halves the chunks at the median of each dimension's begins and ends in turn, down to single nodes.
void ChunkIndex::sort_by_halves() {
  struct Part {
    std::size_t begin;
    std::size_t end;
    std::size_t turn;
  };
  std::vector<Part> parts{{0, order_.size(), 0}};
  std::vector<std::pair<std::int64_t, std::uint32_t>> keys;
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    if (part.end - part.begin <= kFan) continue;
    const std::size_t dim = part.turn / 2;
    const bool by_end = part.turn % 2 == 1;
    // A whole number of nodes to the left, so that nodes do not straddle parts.
    const std::size_t nodes = (part.end - part.begin + kFan - 1) / kFan;
    const std::size_t middle = part.begin + nodes / 2 * kFan;
    keys.clear();  // side by side, for they are compared more often than fetched
    for (std::size_t k = part.begin; k < part.end; ++k) {
      const Box& chunk = chunks_[order_[k]];
      keys.emplace_back(chunk.offsets[dim] + (by_end ? chunk.sizes[dim] : 0), order_[k]);
    }
    std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(middle - part.begin),
                     keys.end());
    for (std::size_t k = part.begin; k < part.end; ++k) order_[k] = keys[k - part.begin].second;
    const std::size_t next = (part.turn + 1) % (2 * rank_);
    parts.push_back({part.begin, middle, next});
    parts.push_back({middle, part.end, next});
  }
}

void ChunkIndex::build() {
  levels_.clear();
  std::size_t below = chunks_.size();
  do {
    const bool lowest = levels_.empty();
    Level level;
    level.count = (below + kFan - 1) / kFan;
    level.bounds.extend(level.count * rank_ * 2);
    for (std::size_t node = 0; node < level.count; ++node) {
      const std::size_t first = node * kFan;
      const std::size_t last = std::min(below, first + kFan);
      std::int64_t* bounds = level.bounds.data() + node * rank_ * 2;
      for (std::size_t d = 0; d < rank_; ++d) {
        bounds[2 * d] = kMax;
        bounds[2 * d + 1] = kMin;
      }
      for (std::size_t k = first; k < last; ++k) {
        if (lowest) {
          const Box& chunk = chunks_[order_[k]];
          for (std::size_t d = 0; d < rank_; ++d) {
            bounds[2 * d] = std::min(bounds[2 * d], chunk.offsets[d]);
            bounds[2 * d + 1] = std::max(bounds[2 * d + 1], chunk.offsets[d] + chunk.sizes[d]);
          }
        } else {
          const std::int64_t* inner = levels_.back().bounds.data() + k * rank_ * 2;
          for (std::size_t d = 0; d < rank_; ++d) {
            bounds[2 * d] = std::min(bounds[2 * d], inner[2 * d]);
            bounds[2 * d + 1] = std::max(bounds[2 * d + 1], inner[2 * d + 1]);
          }
        }
      }
    }
    below = level.count;
    levels_.push_back(std::move(level));
  } while (below > 1);
}

bool ChunkIndex::meets(std::size_t level, std::size_t node, const Box& wanted) const {
  const std::int64_t* bounds = levels_[level].bounds.data() + node * rank_ * 2;
  for (std::size_t d = 0; d < rank_; ++d) {
    if (bounds[2 * d] >= wanted.offsets[d] + wanted.sizes[d] || bounds[2 * d + 1] <= wanted.offsets[d])
      return false;
  }
  return true;
}

void ChunkIndex::find(const Box& wanted, std::vector<std::uint32_t>& found) {
  if (chunks_.empty()) return;
  const std::size_t before = found.size();
  if (search(wanted, found)) return;
  // Too many visits for what they found: put the chunks in the order that bounds them, once.
  found.resize(before);
  halved_ = true;
  sort_by_halves();
  build();
  search(wanted, found);
}

// False when the visits are used up.
bool ChunkIndex::search(const Box& wanted, std::vector<std::uint32_t>& found) {
  open_.clear();
  open_.emplace_back(static_cast<std::uint32_t>(levels_.size() - 1), 0);
  while (!open_.empty()) {
    const auto [level, node] = open_.back();
    open_.pop_back();
    if (!halved_ && visits_left_-- == 0) return false;
    if (!meets(level, node, wanted)) continue;
    const std::size_t first = std::size_t{node} * kFan;
    if (level > 0) {
      const std::size_t last = std::min(levels_[level - 1].count, first + kFan);
      for (std::size_t k = first; k < last; ++k) open_.emplace_back(level - 1, static_cast<std::uint32_t>(k));
      continue;
    }
    const std::size_t last = std::min(chunks_.size(), first + kFan);
    const std::size_t before = found.size();
    for (std::size_t k = first; k < last; ++k) {
      if (meet(chunks_[order_[k]], wanted)) found.push_back(order_[k]);
    }
    visits_left_ += 2 * (found.size() - before);  // results are never what takes too long
  }
  return true;
}

}  // namespace cairn
