// Selections made exact: one Range for every dimension, checked, and cut by the chunks of a tensor.
#pragma once

#include <optional>
#include <vector>

#include "cairn/selection.h"

namespace cairn {

// The selection with the missing dimensions taken whole. Error kInvalidArgument when a range leaves the
// shape, or has a step below 1, or there are more ranges than dimensions.
Selection complete_selection(const Selection& selection, const Shape& shape);

// Every element of a box.
Selection selection_of(const Box& box);

// How many elements a complete selection takes in each dimension.
Shape shape_of(const Selection& selection);

// What a box of the tensor contributes to a selection.
struct SelectedPart {
  Selection from;  // in the box: ranges count from its first element
  Box to;          // in the result
};

// nullopt when they have nothing in common. `selection` is complete and of the box's rank; Error kCorrupt
// when the box has a negative offset or size.
std::optional<SelectedPart> part_in_box(const Selection& selection, const Box& box);

// Some box of the result that none of `parts` covers, in the tensor's own coordinates (from the first to
// the last element of the missing range when steps are above 1). nullopt when all is covered, or when
// the search gives up: it is meant for messages, and looks at no more than some ten million pairs.
std::optional<Box> find_missing_box(const Selection& selection, const std::vector<Box>& parts);

}  // namespace cairn
