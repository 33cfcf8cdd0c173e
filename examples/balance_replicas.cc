// All ranks hold the same state (DDP): deals the items out in turns, one rank after the other. This only
// shows where to do it; the default planner spreads replicas already, by bytes.
#include <cairn/cairn.h>
#include <cairn/planner.h>

#include <iostream>

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
  for (const char* name : {"a", "b", "c", "d", "e"})
    state.set(name, cairn::Tensor::zeros(cairn::DType::kFloat32, {4, 4}));
  cairn::run_ranks(2, [&](cairn::Group& group) {
    DealingPlanner planner;
    const auto saved = cairn::save(state, "memory://dealt", {.group = &group, .planner = &planner});
    if (saved.metadata == nullptr) return;  // the coordinator has it
    const cairn::StorageData& places = saved.metadata->storage_data;
    for (std::size_t i = 0; i < places.size(); ++i)
      std::cout << places.fqn(i) << " " << places.info(i).relative_path.substr(0, 5) << "\n";
  });
  return 0;
}
