#include "tensor/disjoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "cairn/error.h"

namespace cairn {
namespace {

// A segment tree over each dimension in turn, none of which is ever stored (Zomorodian and Edelsbrunner,
// "Fast software for box intersections", 2002).
//
// In each dimension a box is a point, where it begins, and an interval, the places behind that where
// another box would meet it. Two boxes meet there when the point of one lies in the interval of the other.
// A node of the tree is a range of places with the points in it. The intervals that contain all of the
// range meet all of its points: both sets go on to the next dimension. The others go on to the halves.
// In the last dimension one pass from left to right decides.
//
// Places are ranks, not coordinates: the box with the k-th smallest begin is at k, equal begins in the order
// of the boxes. No two points are at one place then, and a pair is met from one side only.
class OverlapSearch {
 public:
  explicit OverlapSearch(std::span<const Box> boxes) : boxes_(boxes) {}

  std::optional<Overlap> run() {
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (!boxes_[i].empty()) box_of_.push_back(i);
    }
    if (box_of_.size() < 2) return std::nullopt;
    const std::vector<std::size_t> dims = cut_dimensions();
    if (dims.empty()) return Overlap{box_of_[0], box_of_[1]};  // all the same box
    for (const std::size_t dim : dims) add_level(dim);
    steps_left_ = kSteps + kStepsPerBox * box_of_.size();
    Group all(box_of_.size());
    std::iota(all.begin(), all.end(), 0);
    const auto found = search(all, all, levels_.size() - 1);
    if (!found) return std::nullopt;
    return Overlap{box_of_[found->first], box_of_[found->second]};
  }

 private:
  using Place = std::uint32_t;
  using Group = std::vector<std::uint32_t>;  // boxes, in the order of the first level's places
  using Pair = std::optional<std::pair<std::uint32_t, std::uint32_t>>;

  // A box meets those whose points are behind its own and before `end`.
  struct Interval {
    Place point;
    Place end;
  };

  static constexpr std::uint64_t kSteps = 100'000;
  static constexpr std::uint64_t kStepsPerBox = 1'000;
  static constexpr std::size_t kFew = 24;  // so many are compared sooner than divided

  std::vector<std::size_t> cut_dimensions() const {
    std::vector<std::size_t> dims;
    const Box& one = boxes_[box_of_[0]];
    for (std::size_t dim = 0; dim < one.rank(); ++dim) {
      const bool same = std::all_of(box_of_.begin(), box_of_.end(), [&](std::size_t i) {
        return boxes_[i].offsets[dim] == one.offsets[dim] && boxes_[i].sizes[dim] == one.sizes[dim];
      });
      if (!same) dims.push_back(dim);
    }
    return dims;
  }

  // Turns the sides in one dimension into places. The first level also decides the order of the boxes.
  void add_level(std::size_t dim) {
    const std::size_t count = box_of_.size();
    if (count > std::numeric_limits<Place>::max()) {
      throw Error(ErrorCode::kLimit, fmt::format("{} boxes are too many to compare", count));
    }
    std::vector<std::pair<std::int64_t, std::uint32_t>> begins(count);
    for (std::uint32_t i = 0; i < count; ++i) begins[i] = {boxes_[box_of_[i]].offsets[dim], i};
    std::sort(begins.begin(), begins.end());
    if (levels_.empty()) {
      std::vector<std::size_t> ordered(count);
      for (std::uint32_t i = 0; i < count; ++i) {
        ordered[i] = box_of_[begins[i].second];
        begins[i].second = i;
      }
      box_of_ = std::move(ordered);
    }
    // Ends in order of size walk along the begins once.
    std::vector<std::pair<std::int64_t, std::uint32_t>> ends(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Box& box = boxes_[box_of_[i]];
      ends[i] = {box.offsets[dim] + box.sizes[dim], i};  // inside a shape: no overflow
    }
    std::sort(ends.begin(), ends.end());
    std::vector<Interval>& level = levels_.emplace_back(count);
    for (Place place = 0; place < count; ++place) level[begins[place].second].point = place;
    Place before = 0;
    for (const auto& [end, box] : ends) {
      while (before < count && begins[before].first < end) ++before;
      level[box].end = before;
    }
  }

  // A pair that meets, out of those in which a point of `points` lies in an interval of `intervals` at
  // this level.
  Pair search(const Group& intervals, const Group& points, std::size_t depth) {
    if (intervals.empty() || points.empty()) return std::nullopt;
    take_steps(intervals.size() + points.size());
    if (std::min(intervals.size(), points.size()) <= kFew) return compare(intervals, points);
    if (depth == 0) return scan(intervals, points);

    const std::vector<Interval>& level = levels_[depth];
    Place first = std::numeric_limits<Place>::max();
    Place last = 0;
    for (const std::uint32_t p : points) {
      first = std::min(first, level[p].point);
      last = std::max(last, level[p].point);
    }
    const Place middle = first + (last - first) / 2 + 1;
    Group through;
    Group left;
    Group right;
    for (const std::uint32_t i : intervals) {
      const auto [point, end] = level[i];
      if (point < first && end > last) {
        through.push_back(i);
        continue;
      }
      if (point + 1 < middle && end > first) left.push_back(i);
      if (point < last && end > middle) right.push_back(i);
    }
    if (auto pair = search(through, points, depth - 1)) return pair;
    if (auto pair = search(points, through, depth - 1)) return pair;
    through = {};
    if (first == last) return std::nullopt;
    Group half;
    for (const std::uint32_t p : points) {
      if (level[p].point < middle) half.push_back(p);
    }
    if (auto pair = search(left, half, depth)) return pair;
    left = {};
    half.clear();
    for (const std::uint32_t p : points) {
      if (level[p].point >= middle) half.push_back(p);
    }
    return search(right, half, depth);
  }

  Pair compare(const Group& some, const Group& others) {
    take_steps(some.size() * others.size());
    for (const std::uint32_t a : some) {
      for (const std::uint32_t b : others) {
        if (a != b && meet(a, b)) return std::pair(a, b);
      }
    }
    return std::nullopt;
  }

  bool meet(std::uint32_t a, std::uint32_t b) const {
    return std::all_of(levels_.begin(), levels_.end(), [&](const std::vector<Interval>& level) {
      return level[a].point < level[b].end && level[b].point < level[a].end;
    });
  }

  // Boxes are numbered by their places at the first level. Of the intervals that began before a point,
  // the one that ends last tells whether any contains it.
  Pair scan(const Group& intervals, const Group& points) const {
    const std::vector<Interval>& level = levels_[0];
    std::uint32_t longest = intervals[0];
    std::size_t next = 0;
    for (const std::uint32_t p : points) {
      for (; next < intervals.size() && intervals[next] < p; ++next) {
        if (level[intervals[next]].end > level[longest].end) longest = intervals[next];
      }
      if (longest < p && level[longest].end > p) return std::pair(longest, p);
    }
    return std::nullopt;
  }

  void take_steps(std::uint64_t steps) {
    if (steps <= steps_left_) {
      steps_left_ -= steps;
      return;
    }
    throw Error(
        ErrorCode::kLimit,
        fmt::format("{} boxes cut in {} dimensions lie so that finding out whether they overlap takes "
                    "too long",
                    box_of_.size(), levels_.size()));
  }

  std::span<const Box> boxes_;
  std::vector<std::size_t> box_of_;            // our number -> number of the box
  std::vector<std::vector<Interval>> levels_;  // [cut dimension][our number]
  std::uint64_t steps_left_ = 0;
};

}  // namespace

std::optional<Overlap> find_overlap(std::span<const Box> boxes) { return OverlapSearch(boxes).run(); }

}  // namespace cairn
