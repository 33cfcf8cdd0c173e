// What the numbers of a tensor look like: extremes, mean, spread, a histogram.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "elements.h"

namespace cairn::cli {

// Fed block by block; complex numbers count by magnitude. min, max, mean and std are those of the finite
// elements: NaN and infinities are counted, and would otherwise hide everything else.
class Statistics {
 public:
  void add(const Block& block);

  std::uint64_t count() const { return count_; }
  std::uint64_t zeros() const { return zeros_; }
  std::uint64_t nans() const { return nans_; }
  std::uint64_t infinities() const { return infinities_; }
  std::uint64_t finite() const { return count_ - nans_ - infinities_; }

  // These need finite() > 0.
  double min() const { return min_; }
  double max() const { return max_; }
  double mean() const { return mean_; }
  Element exact_min() const { return exact_min_; }  // integers beyond 2^53 keep their last digits
  Element exact_max() const { return exact_max_; }

  std::optional<double> std() const;  // with n - 1, as torch's; none below two elements

 private:
  void add_exact(const Block& block);

  std::uint64_t count_ = 0;
  std::uint64_t zeros_ = 0;
  std::uint64_t nans_ = 0;
  std::uint64_t infinities_ = 0;
  double min_ = 0;
  double max_ = 0;
  Element exact_min_;
  Element exact_max_;
  double mean_ = 0;
  double squares_ = 0;  // sum of squared distances from the mean
  std::vector<double> scratch_;
};

// Bins of equal width from min to max of a tensor; the last one includes its upper edge. Integers of few
// values get one bin a value.
class Histogram {
 public:
  Histogram(const Statistics& statistics, Family family);

  void add(const Block& block);

  std::size_t bins() const { return counts_.size(); }
  std::uint64_t count(std::size_t bin) const { return counts_[bin]; }
  const std::vector<double>& edges() const { return edges_; }  // bins() + 1
  bool has_bin_per_value() const { return per_value_; }

 private:
  static constexpr std::size_t kBins = 10;

  std::vector<double> edges_;
  std::vector<std::uint64_t> counts_;
  bool per_value_ = false;
  std::vector<double> scratch_;
};

}  // namespace cairn::cli
