// A save of several ranks in one process, as far as the plan: the calls that save() makes, in their order.
#pragma once

#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

#include "cairn/planner.h"

struct PlannedSave {
  std::vector<cairn::SavePlan> plans;  // what each rank writes
  std::shared_ptr<const cairn::Metadata> metadata;
};

// Rank i is planners[i] with states[i]; rank 0 coordinates. A planner stays where it is: it is not copied.
template <class Planners>
PlannedSave plan_save(Planners& planners, const std::vector<cairn::StateDict>& states) {
  std::vector<cairn::SavePlan> all;
  for (std::size_t rank = 0; rank < planners.size(); ++rank) {
    planners[rank].set_up_planner(states[rank], nullptr, rank == 0);
    all.push_back(planners[rank].create_local_plan());
  }
  cairn::GlobalSavePlan global = planners[0].create_global_plan(std::move(all));
  PlannedSave save{{}, global.metadata};
  for (std::size_t rank = 0; rank < planners.size(); ++rank) {
    save.plans.push_back(planners[rank].finish_plan(std::move(global.plans[rank])));
  }
  return save;
}

// One line per rank: "rank 0: model.w step".
inline void print(const PlannedSave& save) {
  for (std::size_t rank = 0; rank < save.plans.size(); ++rank) {
    std::cout << "rank " << rank << ":";
    for (const cairn::WriteItem item : save.plans[rank].items) std::cout << " " << item.index.fqn;
    std::cout << "\n";
  }
}

inline cairn::Tensor zeros(cairn::Shape shape) { return cairn::Tensor::zeros(cairn::DType::kFloat32, shape); }
