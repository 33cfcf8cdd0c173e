// The whole of a save, for those who have the state only once the save has begun.
#pragma once

#include <functional>
#include <string>

#include "cairn/cairn.h"

namespace cairn {

// Called inside a step of the save, so that what it throws reaches all ranks. The state lives until the save
// ends.
using StateMaker = std::function<const StateDict&()>;

// Called when this rank has written all of the state and nothing is published. What it throws reaches all.
using StateCheck = std::function<void()>;

SaveResult run_save(StateMaker state, const std::string& id, const SaveOptions& options,
                    StateCheck check = {});

}  // namespace cairn
