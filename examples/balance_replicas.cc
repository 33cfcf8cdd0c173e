// All ranks hold the same state (DDP): deals the items out in turns, one rank after the other. This only
// shows where to do it; the default planner spreads replicas already, by bytes.
#include "planned_save.h"

namespace {

class DealingPlanner : public cairn::DefaultSavePlanner {
 public:
  cairn::GlobalSavePlan create_global_plan(std::vector<cairn::SavePlan> all) override {
    const std::vector<cairn::WriteItem> items = all[0].items.to_vector();
    for (cairn::SavePlan& plan : all) plan.items = {};
    for (std::size_t i = 0; i < items.size(); ++i) all[i % all.size()].items.push_back(items[i]);
    return DefaultSavePlanner::create_global_plan(std::move(all));
  }
};

}  // namespace

int main() {
  cairn::StateDict state;
  for (const char* name : {"a", "b", "c", "d", "e"}) state.set(name, zeros({4, 4}));

  std::vector<DealingPlanner> planners(2);
  print(plan_save(planners, {state, state}));
  return 0;
}
