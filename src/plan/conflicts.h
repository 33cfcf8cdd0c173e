// What ranks say differently about the same item; the public find_conflicts, for plans already grouped.
#pragma once

#include <vector>

#include "cairn/plan_steps.h"
#include "plan/groups.h"
#include "plan/item_tables.h"

namespace cairn {

std::vector<PlanProblem> find_conflicts(const ItemGroups& groups, const ItemTables& tables);

}  // namespace cairn
