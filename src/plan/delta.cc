#include <fmt/format.h>

#include "cairn/error.h"
#include "cairn/plan_steps.h"

namespace cairn {

bool compare_save_plans(const SavePlan& a, const SavePlan& b) {
  return a.usable == b.usable && a.items == b.items && a.planner_data == b.planner_data;
}

std::vector<SavePlan> merge_delta_local_plans(const std::vector<SavePlan>& cached,
                                              std::vector<SavePlan> deltas) {
  if (cached.size() != deltas.size()) {
    throw Error(ErrorCode::kConflict,
                fmt::format("{} ranks sent plans, {} are remembered: send them all again", deltas.size(),
                            cached.size()))
        .while_doing("merging plans with those of the last save");
  }
  for (std::size_t rank = 0; rank < deltas.size(); ++rank) {
    if (deltas[rank].usable) continue;
    if (!cached[rank].usable) {
      throw Error(ErrorCode::kConflict, "the plan is \"as last time\", and there was no last time")
          .on_rank(static_cast<int>(rank))
          .while_doing("merging plans with those of the last save");
    }
    deltas[rank] = cached[rank];
  }
  return deltas;
}

}  // namespace cairn
