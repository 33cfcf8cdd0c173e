// Loads a checkpoint whose names are not the model's: what was saved as "model" is called "net" here. Tensors
// are filled in place, so it is enough to show them to the planner under the saved name. Objects are
// replaced: load_bytes puts them where the caller looks for them.
#include <cairn/cairn.h>
#include <cairn/planner.h>

#include <iostream>
#include <mutex>

class RenamePlanner : public cairn::DefaultLoadPlanner {
 public:
  void set_up_planner(cairn::StateDict& state, const cairn::Metadata* metadata,
                      bool is_coordinator) override {
    state_ = &state;
    renamed_ = {{"model", *state.find("net")}};
    DefaultLoadPlanner::set_up_planner(renamed_, metadata, is_coordinator);
  }

  void load_bytes(const cairn::ReadItem& item, cairn::Value value) override {
    const std::lock_guard lock(mutex_);  // readers call from many threads
    state_->find("net")->get<cairn::Dict>().set(item.dest_index.fqn.substr(6), std::move(value));  // "model."
  }

 private:
  cairn::StateDict* state_ = nullptr;
  cairn::StateDict renamed_;  // lives as long as the load
  std::mutex mutex_;
};

int main() {
  cairn::Tensor weight = cairn::Tensor::zeros(cairn::DType::kFloat32, {2, 2});
  weight.at<float>({1, 1}) = 63;
  cairn::save({{"model", cairn::Dict{{"w", weight}, {"step", 7}}}}, "memory://names");

  const cairn::Tensor mine = cairn::Tensor::zeros(cairn::DType::kFloat32, {2, 2});
  cairn::StateDict state = {{"net", cairn::Dict{{"w", mine}, {"step", 0}}}};
  RenamePlanner planner;
  cairn::load(state, "memory://names", {.planner = &planner});
  std::cout << cairn::to_string(state) << " " << mine.at<float>({1, 1}) << "\n";
}
