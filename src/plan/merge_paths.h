// The paths of all ranks as one map.
#pragma once

#include <vector>

#include "cairn/plan.h"

namespace cairn {

// The paths the plans carry: of each name the lowest rank's path; names in the order of the last rank,
// then those only earlier ranks have (DCP's order). Nothing when no plan carries paths.
PlannerData merge_paths(const std::vector<SavePlan>& plans);

}  // namespace cairn
