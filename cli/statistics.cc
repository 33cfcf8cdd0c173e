#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace cairn::cli {
namespace {

struct BlockSums {
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t finite = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0;
  double squares = 0;
};

// Two passes over a block that is in the cache: the second takes distances from the block's own mean, so
// no digits are lost when the mean is large and the spread small.
BlockSums sum_block(std::span<const double> values) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  BlockSums s;
  double sum = 0;
  for (const double v : values) {
    s.zeros += v == 0;
    s.nans += v != v;
    const bool finite = std::abs(v) <= kLargest;
    s.finite += finite;
    sum += finite ? v : 0;
    s.min = finite && v < s.min ? v : s.min;
    s.max = finite && v > s.max ? v : s.max;
  }
  if (s.finite == 0) return s;
  s.mean = sum / static_cast<double>(s.finite);
  for (const double v : values) {
    const double distance = std::abs(v) <= kLargest ? v - s.mean : 0;
    s.squares += distance * distance;
  }
  return s;
}

}  // namespace

void Statistics::add(const Block& block) {
  const BlockSums s = sum_block(block.magnitudes(scratch_));
  if (s.finite > 0) {
    const double before = static_cast<double>(finite());
    const double added = static_cast<double>(s.finite);
    const double distance = s.mean - mean_;
    min_ = before == 0 ? s.min : std::min(min_, s.min);
    max_ = before == 0 ? s.max : std::max(max_, s.max);
    mean_ += distance * (added / (before + added));
    squares_ += s.squares + distance * distance * (before * added / (before + added));
  }
  add_exact(block);
  count_ += block.count;
  zeros_ += s.zeros;
  nans_ += s.nans;
  infinities_ += block.count - s.nans - s.finite;
}

void Statistics::add_exact(const Block& block) {
  if (block.family == Family::kReal || block.family == Family::kComplex) {
    exact_min_.real = min_;
    exact_max_.real = max_;
    return;
  }
  const auto extend = [&]<class T>(std::span<const T> values) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const bool is_first = count_ == 0;
    if (is_first || *low < static_cast<T>(exact_min_.bits))
      exact_min_.bits = static_cast<std::uint64_t>(*low);
    if (is_first || *high > static_cast<T>(exact_max_.bits))
      exact_max_.bits = static_cast<std::uint64_t>(*high);
  };
  if (block.family == Family::kSigned) {
    extend(std::span(static_cast<const std::int64_t*>(block.data), block.count));
  } else {
    extend(std::span(static_cast<const std::uint64_t*>(block.data), block.count));
  }
}

std::optional<double> Statistics::std() const {
  if (finite() < 2) return std::nullopt;
  return std::sqrt(squares_ / static_cast<double>(finite() - 1));
}

Histogram::Histogram(const Statistics& statistics, Family family) {
  const double low = statistics.min();
  const double high = statistics.max();
  const bool integers = family != Family::kReal && family != Family::kComplex;
  per_value_ = low == high || (integers && high - low < static_cast<double>(kBins));
  // Halves first: the distance of two finite doubles need not be one.
  const double half_width = high / 2 - low / 2;
  const std::size_t bins = !per_value_ ? kBins : low == high ? 1 : static_cast<std::size_t>(high - low) + 1;
  for (std::size_t i = 0; i <= bins; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(bins);
    edges_.push_back(per_value_ ? low + static_cast<double>(i) : low + half_width * part + half_width * part);
  }
  if (!per_value_) edges_.back() = high;
  counts_.assign(bins, 0);
}

void Histogram::add(const Block& block) {
  const double low = edges_.front();
  const double half_width = edges_.back() / 2 - low / 2;
  const double last = static_cast<double>(counts_.size() - 1);
  const double scale = half_width > 0 ? static_cast<double>(counts_.size()) / half_width : 0;
  for (const double v : block.magnitudes(scratch_)) {
    if (!std::isfinite(v)) continue;
    const double guess = (v / 2 - low / 2) * scale;
    // Also when the scale overflowed, for a range of next to nothing.
    std::size_t bin = guess >= 0 ? static_cast<std::size_t>(std::min(guess, last)) : 0;
    // The edges decide, not the rounding of the guess.
    while (bin > 0 && v < edges_[bin]) --bin;
    while (bin + 1 < counts_.size() && v >= edges_[bin + 1]) ++bin;
    ++counts_[bin];
  }
}

}  // namespace cairn::cli
