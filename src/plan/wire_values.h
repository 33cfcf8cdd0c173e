// Plain values in messages: what planners attach to a plan.
#pragma once

#include <string>

#include "base/wire_bytes.h"
#include "cairn/state_dict.h"

namespace cairn {

void put_value(std::string& out, const Value& value);  // Error(kUnsupported) for tensors and the like
Value read_value(WireReader& in);

}  // namespace cairn
