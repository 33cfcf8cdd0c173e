#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "cairn/tensor.h"
#include "tensor/disjoint.h"

namespace cairn {
namespace {

// Numbers modulo the prime 2^61 - 1.
constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  const std::uint64_t sum =
      (static_cast<std::uint64_t>(product) & kPrime) + static_cast<std::uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}

std::uint64_t subtract(std::uint64_t a, std::uint64_t b) { return a >= b ? a - b : a + kPrime - b; }

// Tells a tiling from everything else by adding up random weights.
//
// Give every coordinate of every dimension a random weight, and an element the product of the weights of
// its coordinates. The weight of a box is then a product too, one factor per dimension: the sum of the
// weights along its side, which is the difference of two prefix sums, and those may as well be what is
// random. Boxes that tile a shape add up to the weight of the shape. Boxes that leave an element out, or
// have one twice, do so with a probability of at most rank / 2^61: the difference is a polynomial in the
// random numbers that is not zero. The key is drawn once per process, so no file can be made to fit it.
class Weights {
 public:
  explicit Weights(std::size_t rank) {
    for (std::size_t dim = 0; dim < rank; ++dim) keys_.push_back(mix(kHashSeed.start + dim * kOdd));
  }

  // Whether the parts of boxes[i], i in `group`, that lie in `region` tile it.
  bool tile(const Box& region, std::span<const Box> boxes, std::span<const std::size_t> group) const {
    std::uint64_t sum = of_part(region, region);
    for (const std::size_t i : group) sum = subtract(sum, of_part(boxes[i], region));
    return sum == 0;
  }

 private:
  static constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  std::uint64_t of_part(const Box& box, const Box& region) const {
    std::uint64_t weight = 1;
    for (std::size_t dim = 0; dim < keys_.size(); ++dim) {
      const std::int64_t begin = std::max(box.offsets[dim], region.offsets[dim]);
      const std::int64_t end =
          std::min(box.offsets[dim] + box.sizes[dim], region.offsets[dim] + region.sizes[dim]);
      if (end <= begin) return 0;
      weight = multiply(weight, subtract(prefix(dim, end), prefix(dim, begin)));
    }
    return weight;
  }

  std::uint64_t prefix(std::size_t dim, std::int64_t at) const {
    const std::uint64_t key = keys_[dim];
    return mix(mix(static_cast<std::uint64_t>(at) ^ key) + key) % kPrime;
  }

  std::vector<std::uint64_t> keys_;
};

std::optional<CoverProblem> find_out_of_bounds(const Shape& shape, std::span<const Box> boxes) {
  const Box whole = Box::whole(shape);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const bool same_rank = boxes[i].offsets.rank() == shape.rank() && boxes[i].sizes.rank() == shape.rank();
    if (same_rank && whole.contains(boxes[i])) continue;
    CoverProblem problem{CoverProblem::Kind::kOutOfBounds, i, i, 0, {}};
    problem.text = fmt::format("chunk {} with offsets {} and sizes {} does not lie in shape {}", i,
                               to_string(boxes[i].offsets), to_string(boxes[i].sizes), to_string(shape));
    return problem;
  }
  return std::nullopt;
}

// Looks for an overlap where the tiling is broken: cuts the shape in two again and again, and lays aside
// the parts that are tiled. One missing chunk out of a million leaves a region of a few boxes. Boxes that
// are broken all over, or made so that every cut goes through most of them, use up the visits and are
// searched as a whole.
class BrokenRegions {
 public:
  BrokenRegions(const Shape& shape, std::span<const Box> boxes)
      : boxes_(boxes), weights_(shape.rank()), visits_left_(kVisitsPerBox * boxes.size()) {
    Group all;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      if (!boxes[i].empty()) all.push_back(i);
    }
    add(Box::whole(shape), std::move(all));
  }

  bool none() const { return waiting_.empty(); }

  std::optional<Overlap> find_overlap() {
    while (!waiting_.empty()) {
      Region region = std::move(waiting_.back());
      waiting_.pop_back();
      if (region.group.size() > visits_left_) return cairn::find_overlap(boxes_);
      visits_left_ -= region.group.size();
      if (region.group.size() <= kFew || !halve(region)) {
        if (const auto overlap = compare(region.group)) return overlap;
      }
    }
    return std::nullopt;
  }

 private:
  using Group = std::vector<std::size_t>;  // numbers of boxes
  struct Region {
    Box box;
    Group group;  // what lies in it, if only in part
  };

  static constexpr std::size_t kFew = 32;  // so many are compared sooner than divided
  static constexpr std::size_t kVisitsPerBox = 16;

  void add(Box box, Group group) {
    if (weights_.tile(box, boxes_, group)) return;
    waiting_.push_back({std::move(box), std::move(group)});
  }

  // Cuts at the middle one of the sides in the region, in the dimension where that crosses the fewest
  // boxes. False when no side lies inside.
  bool halve(const Region& region) {
    std::optional<Cut> best;
    for (std::size_t dim = 0; dim < region.box.rank(); ++dim) {
      const std::optional<Cut> cut = cut_along(region, dim);
      if (cut && (!best || cut->cost < best->cost)) best = cut;
    }
    if (!best) return false;
    Box lower = region.box;
    Box upper = region.box;
    lower.sizes[best->dim] = best->at - lower.offsets[best->dim];
    upper.offsets[best->dim] = best->at;
    upper.sizes[best->dim] -= lower.sizes[best->dim];
    Group below;
    Group above;
    for (const std::size_t i : region.group) {
      if (boxes_[i].offsets[best->dim] < best->at) below.push_back(i);
      if (boxes_[i].offsets[best->dim] + boxes_[i].sizes[best->dim] > best->at) above.push_back(i);
    }
    add(std::move(lower), std::move(below));
    add(std::move(upper), std::move(above));
    return true;
  }

  struct Cut {
    std::size_t dim;
    std::int64_t at;
    std::size_t cost;  // boxes in the fuller half
  };

  std::optional<Cut> cut_along(const Region& region, std::size_t dim) {
    const std::int64_t first = region.box.offsets[dim];
    const std::int64_t last = first + region.box.sizes[dim];
    sides_.clear();
    for (const std::size_t i : region.group) {
      const std::int64_t begin = boxes_[i].offsets[dim];
      const std::int64_t end = begin + boxes_[i].sizes[dim];
      if (begin > first) sides_.push_back(begin);
      if (end < last) sides_.push_back(end);
    }
    if (sides_.empty()) return std::nullopt;
    const auto middle = sides_.begin() + static_cast<std::ptrdiff_t>(sides_.size() / 2);
    std::nth_element(sides_.begin(), middle, sides_.end());
    Cut cut{dim, *middle, 0};
    std::size_t below = 0;
    std::size_t above = 0;
    for (const std::size_t i : region.group) {
      below += boxes_[i].offsets[dim] < cut.at ? 1U : 0U;
      above += boxes_[i].offsets[dim] + boxes_[i].sizes[dim] > cut.at ? 1U : 0U;
    }
    cut.cost = std::max(below, above);
    return cut;
  }

  // Exact also for boxes that no cut tells apart: they are equal inside the region.
  std::optional<Overlap> compare(const Group& group) const {
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (intersect(boxes_[group[k]], boxes_[group[i]])) return Overlap{group[k], group[i]};
      }
    }
    return std::nullopt;
  }

  std::span<const Box> boxes_;
  Weights weights_;
  std::size_t visits_left_;
  std::vector<Region> waiting_;
  std::vector<std::int64_t> sides_;
};

CoverProblem overlap_problem(const Overlap& overlap, std::span<const Box> boxes) {
  CoverProblem problem{CoverProblem::Kind::kOverlap,
                       std::min(overlap.first, overlap.second),
                       std::max(overlap.first, overlap.second),
                       0,
                       {}};
  problem.text =
      fmt::format("chunk {} at {} overlaps chunk {} at {}", problem.first, to_string(boxes[problem.first]),
                  problem.second, to_string(boxes[problem.second]));
  return problem;
}

}  // namespace

std::optional<CoverProblem> find_cover_problem(const Shape& shape, std::span<const Box> boxes) {
  const std::int64_t elements = shape.numel();
  if (auto problem = find_out_of_bounds(shape, boxes)) return problem;
  BrokenRegions broken(shape, boxes);
  if (broken.none()) return std::nullopt;
  if (const auto overlap = broken.find_overlap()) return overlap_problem(*overlap, boxes);
  std::int64_t missing = elements;
  for (const Box& box : boxes) missing -= box.volume();  // disjoint and inside: never below 0
  if (missing == 0) return std::nullopt;
  CoverProblem problem{CoverProblem::Kind::kHole, 0, 0, missing, {}};
  problem.text =
      fmt::format("{} of {} elements of shape {} lie in no chunk", missing, elements, to_string(shape));
  return problem;
}

}  // namespace cairn
