// Saves the state under other names: every entry gets a prefix. Only set_up_planner changes; everything
// after it sees the new names.
#include "planned_save.h"

namespace {

class RenamePlanner : public cairn::DefaultSavePlanner {
 public:
  void set_up_planner(const cairn::StateDict& state, const cairn::StorageMeta* storage_meta,
                      bool is_coordinator) override {
    renamed_ = {};
    for (const auto& [key, value] : state) renamed_.set("foo_" + cairn::to_string(key), value);
    DefaultSavePlanner::set_up_planner(renamed_, storage_meta, is_coordinator);
  }

 private:
  cairn::StateDict renamed_;  // lives as long as the save
};

}  // namespace

int main() {
  cairn::StateDict state;
  state.set("model", cairn::Dict{{"w", zeros({2, 2})}});
  state.set("step", 7);

  std::vector<RenamePlanner> planners(1);
  const PlannedSave save = plan_save(planners, {state});
  print(save);
  for (const auto& [name, stored] : save.metadata->state_dict_metadata) std::cout << name << "\n";
  // The data behind an item is found under its new name.
  std::cout << cairn::to_string(planners[0].resolve_data(save.plans[0].items[1])) << "\n";
  return 0;
}
