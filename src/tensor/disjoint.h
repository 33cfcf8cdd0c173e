// Whether boxes keep out of each other's way.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "cairn/tensor.h"

namespace cairn {

struct Overlap {
  std::size_t first;
  std::size_t second;
};

// Two boxes that share an element, if there are any. All boxes are of the same rank and lie inside some
// shape; those without volume share nothing.
//
// Takes n log^(d-1) n steps for n boxes cut in d dimensions, however they lie: dimensions in which all
// boxes have the same side do not count. Error(kLimit) when that is more than a thousand steps a box,
// which takes more than three dimensions and boxes made for it.
std::optional<Overlap> find_overlap(std::span<const Box> boxes);

}  // namespace cairn
