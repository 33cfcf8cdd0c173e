// Whether chunks tile their tensor, for thousands of tensors of thousands of chunks each.
#pragma once

#include <vector>

#include "cairn/tensor.h"

namespace cairn {

// True when the chunks are slices along one dimension, in order, that make up the whole of `shape`: how
// nearly every tensor is cut, and one walk tells. False says nothing; find_cover_problem decides.
bool are_slices_in_order(const Shape& shape, const std::vector<Box>& chunks);

}  // namespace cairn
