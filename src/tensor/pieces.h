// A tensor cut into pieces that fit a buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cairn/tensor.h"

namespace cairn {

// Calls each(box) for boxes that follow each other in row-major order and make up `box`. `size_of(box)` says
// how large one is, and never less for a larger one; no box is larger than `most`, unless it is one element.
template <class SizeOf, class Each>
void for_each_piece(const Box& box, std::uint64_t most, const SizeOf& size_of, const Each& each) {
  if (box.empty()) return;
  std::size_t axis = 0;
  while (axis < box.rank() && box.sizes[axis] == 1) ++axis;
  if (axis == box.rank() || size_of(box) <= most) return each(box);
  // As many steps along the axis as fit; one, and then parts of that one, when not even one does.
  Box piece = box;
  std::int64_t steps = 1;
  for (std::int64_t too_many = box.sizes[axis]; too_many - steps > 1;) {
    piece.sizes[axis] = steps + (too_many - steps) / 2;
    (size_of(piece) <= most ? steps : too_many) = piece.sizes[axis];
  }
  for (std::int64_t at = 0; at < box.sizes[axis]; at += steps) {
    piece.offsets[axis] = box.offsets[axis] + at;
    piece.sizes[axis] = std::min(steps, box.sizes[axis] - at);
    for_each_piece(piece, most, size_of, each);
  }
}

}  // namespace cairn
