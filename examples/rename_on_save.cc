// Saves the state under other names: every entry gets a prefix. Only set_up_planner changes; everything after
// it sees the new names.
#include <cairn/cairn.h>
#include <cairn/checkpoint.h>
#include <cairn/planner.h>

#include <iostream>

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
  const cairn::Tensor weight = cairn::Tensor::zeros(cairn::DType::kFloat32, {2, 2});
  RenamePlanner planner;
  cairn::save({{"model", cairn::Dict{{"w", weight}}}, {"step", 7}}, "memory://renamed",
              {.planner = &planner});

  std::cout << cairn::to_string(cairn::load_into_new("memory://renamed")) << "\n";
  return 0;
}
