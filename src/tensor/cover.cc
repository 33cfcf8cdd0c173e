#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "cairn/tensor.h"

namespace cairn {
namespace {

struct Overlap {
  std::size_t first;
  std::size_t second;
};

// One side of a box, with the box's number: what the sorts below move around.
struct Side {
  std::int64_t begin;
  std::int64_t end;
  std::size_t box;
};

// Looks for two boxes that share an element, among boxes with volume.
//
// Dimensions in which all boxes of a group have the same side say nothing and are left out. What remains
// is mostly two-dimensional, and a sweep over one dimension with an ordered set of the other's intervals
// decides it in n log n. A group that is cut in more dimensions is first split at every plane that no
// box crosses; the parts are searched alone. A group that no plane splits is swept over one dimension
// against the list of boxes met there, which is quadratic in the worst case.
class OverlapSearch {
 public:
  OverlapSearch(std::span<const Box> boxes, std::size_t rank) : boxes_(boxes), rank_(rank) {}

  std::optional<Overlap> run() {
    Group all;
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (!boxes_[i].empty()) all.push_back(i);
    }
    waiting_.push_back(std::move(all));
    while (!waiting_.empty()) {
      const Group group = std::move(waiting_.back());
      waiting_.pop_back();
      const auto overlap = group.size() <= kFew ? compare_all(group) : search(group);
      if (overlap) return overlap;
    }
    return std::nullopt;
  }

 private:
  using Group = std::vector<std::size_t>;  // numbers of boxes
  static constexpr std::size_t kFew = 6;   // so many are compared sooner than sorted

  std::optional<Overlap> compare_all(const Group& group) const {
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (meet(boxes_[group[k]], boxes_[group[i]])) return Overlap{group[k], group[i]};
      }
    }
    return std::nullopt;
  }

  bool meet(const Box& a, const Box& b) const {
    for (std::size_t d = 0; d < rank_; ++d) {
      if (a.offsets[d] + a.sizes[d] <= b.offsets[d] || b.offsets[d] + b.sizes[d] <= a.offsets[d])
        return false;
    }
    return true;
  }

  std::int64_t begin_of(std::size_t box, std::size_t dim) const { return boxes_[box].offsets[dim]; }
  // Boxes lie inside a shape, so this does not overflow.
  std::int64_t end_of(std::size_t box, std::size_t dim) const {
    return begin_of(box, dim) + boxes_[box].sizes[dim];
  }

  std::optional<Overlap> search(const Group& group) {
    const std::vector<std::size_t> dims = cut_dimensions(group);
    if (dims.empty()) return Overlap{group[0], group[1]};  // all the same box
    if (dims.size() <= 2) return sweep_plane(group, dims.front(), dims.back());
    for (const std::size_t dim : dims) {
      if (split(group, dim)) return std::nullopt;
    }
    return sweep_space(group, dims);
  }

  // The dimensions in which not all boxes of the group have the same side.
  std::vector<std::size_t> cut_dimensions(const Group& group) const {
    std::vector<std::size_t> dims;
    for (std::size_t dim = 0; dim < rank_; ++dim) {
      const std::int64_t begin = begin_of(group[0], dim);
      const std::int64_t end = end_of(group[0], dim);
      const bool same = std::all_of(group.begin(), group.end(), [&](std::size_t box) {
        return begin_of(box, dim) == begin && end_of(box, dim) == end;
      });
      if (!same) dims.push_back(dim);
    }
    return dims;
  }

  std::vector<Side> sorted_sides(const Group& group, std::size_t dim) const {
    std::vector<Side> sides;
    sides.reserve(group.size());
    for (const std::size_t box : group) sides.push_back({begin_of(box, dim), end_of(box, dim), box});
    std::sort(sides.begin(), sides.end(), [](const Side& a, const Side& b) { return a.begin < b.begin; });
    return sides;
  }

  // Puts the parts of the group between planes that cross no box in line; false when there is one part.
  bool split(const Group& group, std::size_t dim) {
    const std::vector<Side> sides = sorted_sides(group, dim);
    Group part;
    std::int64_t reach = sides.front().end;
    for (const Side& side : sides) {
      if (side.begin >= reach) waiting_.push_back(std::exchange(part, {}));
      reach = std::max(reach, side.end);
      part.push_back(side.box);
    }
    if (part.size() == group.size()) return false;
    waiting_.push_back(std::move(part));
    return true;
  }

  // Sweeps over dimension `along`; the sides in dimension `across` of the boxes at the sweep line are
  // disjoint as long as nothing overlaps, so only neighbours in their order can meet a new one. When
  // both are the same dimension, at most one box is at the line.
  std::optional<Overlap> sweep_plane(const Group& group, std::size_t along, std::size_t across) const {
    const std::vector<Side> by_begin = sorted_sides(group, along);
    std::vector<Side> by_end = by_begin;
    std::sort(by_end.begin(), by_end.end(), [](const Side& a, const Side& b) { return a.end < b.end; });
    std::map<std::int64_t, std::size_t> at_line;  // begin across -> box
    std::size_t ended = 0;
    for (const Side& side : by_begin) {
      for (; by_end[ended].end <= side.begin; ++ended) at_line.erase(begin_of(by_end[ended].box, across));
      const auto next = at_line.lower_bound(begin_of(side.box, across));
      if (next != at_line.end() && next->first < end_of(side.box, across)) {
        return Overlap{next->second, side.box};
      }
      if (next != at_line.begin()) {
        const std::size_t before = std::prev(next)->second;
        if (end_of(before, across) > begin_of(side.box, across)) return Overlap{before, side.box};
      }
      at_line.emplace_hint(next, begin_of(side.box, across), side.box);
    }
    return std::nullopt;
  }

  std::optional<Overlap> sweep_space(const Group& group, const std::vector<std::size_t>& dims) const {
    std::vector<Side> at_line;
    for (const Side& side : sorted_sides(group, shortest_sides(group, dims))) {
      std::erase_if(at_line, [&](const Side& other) { return other.end <= side.begin; });
      for (const Side& other : at_line) {
        if (meet(boxes_[other.box], boxes_[side.box])) return Overlap{other.box, side.box};
      }
      at_line.push_back(side);
    }
    return std::nullopt;
  }

  // The dimension whose sides are shortest, measured by how far the group reaches: sweeping over it
  // meets the fewest boxes at a time.
  std::size_t shortest_sides(const Group& group, const std::vector<std::size_t>& dims) const {
    std::size_t best = dims[0];
    double least = 2.0 * static_cast<double>(group.size());
    for (const std::size_t dim : dims) {
      double length = 0;
      std::int64_t first = begin_of(group[0], dim);
      std::int64_t last = end_of(group[0], dim);
      for (const std::size_t box : group) {
        first = std::min(first, begin_of(box, dim));
        last = std::max(last, end_of(box, dim));
        length += static_cast<double>(boxes_[box].sizes[dim]);
      }
      const double share = length / static_cast<double>(last - first);
      if (share < least) {
        least = share;
        best = dim;
      }
    }
    return best;
  }

  std::span<const Box> boxes_;
  std::size_t rank_;
  std::vector<Group> waiting_;
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

}  // namespace

std::optional<CoverProblem> find_cover_problem(const Shape& shape, std::span<const Box> boxes) {
  const std::int64_t elements = shape.numel();
  if (auto problem = find_out_of_bounds(shape, boxes)) return problem;
  if (const auto overlap = OverlapSearch(boxes, shape.rank()).run()) {
    CoverProblem problem{CoverProblem::Kind::kOverlap,
                         std::min(overlap->first, overlap->second),
                         std::max(overlap->first, overlap->second),
                         0,
                         {}};
    problem.text =
        fmt::format("chunk {} at {} overlaps chunk {} at {}", problem.first, to_string(boxes[problem.first]),
                    problem.second, to_string(boxes[problem.second]));
    return problem;
  }
  std::int64_t missing = elements;
  for (const Box& box : boxes) missing -= box.volume();  // disjoint and inside: never below 0
  if (missing == 0) return std::nullopt;
  CoverProblem problem{CoverProblem::Kind::kHole, 0, 0, missing, {}};
  problem.text =
      fmt::format("{} of {} elements of shape {} lie in no chunk", missing, elements, to_string(shape));
  return problem;
}

}  // namespace cairn
