// Which elements of a tensor are wanted: a slice, as Python writes it.
//
//   Selection rows = parse_selection("[0:16]", shape);   // the first 16, all columns
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/tensor.h"

namespace cairn {

// One dimension of a slice: start, start + step, ... , `count` elements.
struct Range {
  std::int64_t start = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;  // >= 1
  bool operator==(const Range&) const = default;
};
using Selection = std::vector<Range>;  // leading dimensions; the rest is taken whole

// "[0:16, ::2, -1]" as Python would read it, for a tensor of this shape. A single index is a Range of
// one element (the dimension stays). Throws Error(kInvalidArgument) that points at the odd character.
Selection parse_selection(std::string_view text, const Shape& shape);

}  // namespace cairn
