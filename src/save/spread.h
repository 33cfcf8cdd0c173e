// Which item of a plan goes into which of a rank's files.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/plan.h"

namespace cairn {

// `files` lists of positions in `items`. Large items go to the lightest file, largest first; inside a file
// objects come first, as in DCP, and the rest stays in the plan's order. A file may be empty.
std::vector<std::vector<std::size_t>> spread_items(const WriteItems& items,
                                                   const std::vector<std::uint64_t>& sizes, int files);

}  // namespace cairn
