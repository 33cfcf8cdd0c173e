#include "tensor/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace cairn {
namespace {

// The smallest k >= 0 with start + k * step >= bound, at most `count`.
std::int64_t first_at_or_after(const Range& range, std::int64_t bound) {
  if (bound <= range.start) return 0;
  const std::int64_t distance = bound - range.start;
  const std::int64_t steps = distance / range.step + (distance % range.step != 0 ? 1 : 0);
  return std::min(steps, range.count);
}

void check_range(const Range& range, std::int64_t size, std::size_t dimension) {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("range {}+{}*{} in dimension {}: {} (the dimension has {} elements)", range.start,
                            range.count, range.step, dimension, what, size));
  };
  if (range.step < 1) fail("the step must be at least 1");
  if (range.count < 0) fail("the count must not be negative");
  if (range.start < 0 || range.start > size) fail("it starts outside the tensor");
  if (range.count == 0) return;
  std::int64_t last = 0;
  const bool too_far = __builtin_mul_overflow(range.count - 1, range.step, &last) ||
                       __builtin_add_overflow(last, range.start, &last) || last >= size;
  if (too_far) fail("it ends outside the tensor");
}

// The parts of `whole` outside `hole`, which lies inside it: at most two a dimension.
void cut_out(Box whole, const Box& hole, std::vector<Box>& rest) {
  for (std::size_t d = 0; d < whole.rank(); ++d) {
    const std::int64_t begin = whole.offsets[d], end = begin + whole.sizes[d];
    const std::int64_t hole_end = hole.offsets[d] + hole.sizes[d];
    if (hole.offsets[d] > begin) {
      rest.push_back(whole);
      rest.back().sizes[d] = hole.offsets[d] - begin;
    }
    if (hole_end < end) {
      rest.push_back(whole);
      rest.back().offsets[d] = hole_end;
      rest.back().sizes[d] = end - hole_end;
    }
    whole.offsets[d] = hole.offsets[d];
    whole.sizes[d] = hole.sizes[d];
  }
}

Box in_tensor(const Box& result, const Selection& selection) {
  Box box = result;
  for (std::size_t d = 0; d < box.rank(); ++d) {
    const Range& range = selection[d];
    box.offsets[d] = range.start + result.offsets[d] * range.step;
    box.sizes[d] = (result.sizes[d] - 1) * range.step + 1;
  }
  return box;
}

}  // namespace

Selection selection_of(const Box& box) {
  Selection selection;
  selection.reserve(box.rank());
  for (std::size_t d = 0; d < box.rank(); ++d) selection.push_back({box.offsets[d], box.sizes[d], 1});
  return selection;
}

Selection complete_selection(const Selection& selection, const Shape& shape) {
  if (selection.size() > shape.rank()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the selection has {} dimensions, but the tensor has the shape {}",
                            selection.size(), to_string(shape)));
  }
  Selection complete = selection;
  complete.reserve(shape.rank());
  for (std::size_t d = 0; d < selection.size(); ++d) check_range(selection[d], shape[d], d);
  for (std::size_t d = selection.size(); d < shape.rank(); ++d) complete.push_back({0, shape[d], 1});
  return complete;
}

Shape shape_of(const Selection& selection) {
  Shape shape(selection.size(), 0);
  for (std::size_t d = 0; d < selection.size(); ++d) shape[d] = selection[d].count;
  return shape;
}

std::optional<SelectedPart> part_in_box(const Selection& selection, const Box& box) {
  const std::size_t rank = selection.size();
  SelectedPart part{Selection(rank), Box{Shape(rank, 0), Shape(rank, 0)}};
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t begin = box.offsets[d], size = box.sizes[d];
    if (begin < 0 || size < 0) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("a chunk is at {}, which is no place in a tensor", to_string(box)));
    }
    const Range& range = selection[d];
    const std::int64_t first = first_at_or_after(range, begin);
    const std::int64_t last = first_at_or_after(range, checked_add(begin, size));
    if (first >= last) return std::nullopt;
    part.from[d] = {range.start + first * range.step - begin, last - first, range.step};
    part.to.offsets[d] = first;
    part.to.sizes[d] = last - first;
  }
  return part;
}

std::optional<Box> find_missing_box(const Selection& selection, const std::vector<Box>& parts) {
  constexpr std::size_t kMostPairs = 10'000'000;
  std::size_t pairs = 0;
  std::vector<Box> uncovered{Box::whole(shape_of(selection))};
  while (!uncovered.empty()) {
    const Box box = std::move(uncovered.back());
    uncovered.pop_back();
    std::optional<Box> common;
    for (const Box& part : parts) {
      if (++pairs > kMostPairs) return std::nullopt;
      common = intersect(box, part);
      if (common) break;
    }
    if (!common) return in_tensor(box, selection);
    cut_out(box, *common, uncovered);
  }
  return std::nullopt;
}

}  // namespace cairn
