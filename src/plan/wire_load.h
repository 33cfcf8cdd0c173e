// Load plans as bytes, both ways between a rank and the coordinator.
//
// The header of every plan, names, lists of dimensions, a row of 40 bytes per item, shared reads and their
// receivers, attached values. The sender is not trusted, as in plan/wire.h.
#pragma once

#include <string>

#include "base/bytes.h"
#include "cairn/plan.h"

namespace cairn {

// `rank` is whose plan it is. Error(kUnsupported) for planner_data that is a PathMap, or for attached values
// that hold tensors; kInvalidArgument for a hint that is no 32-bit number.
std::string encode_load_plan(const LoadPlan& plan, int rank, int world_size);
LoadPlan decode_load_plan(ByteSpan message, int rank, int world_size);

}  // namespace cairn
