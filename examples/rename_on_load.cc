// Loads a checkpoint whose names are not the model's: what was saved as "model" is called "net" here.
//
//   rename_on_load CHECKPOINT
//
// Tensors are filled in place, so it is enough to show them to the planner under the saved name. Objects
// are replaced: load_bytes puts them where the caller looks for them.
#include <cstring>
#include <iostream>
#include <mutex>

#include "planned_load.h"

namespace {

class RenamePlanner : public cairn::DefaultLoadPlanner {
 public:
  void set_up_planner(cairn::StateDict& state, const cairn::Metadata* metadata,
                      bool is_coordinator) override {
    state_ = &state;
    renamed_ = {};
    for (const auto& [key, value] : state)
      renamed_.set(key == cairn::Key("net") ? cairn::Key("model") : key, value);
    DefaultLoadPlanner::set_up_planner(renamed_, metadata, is_coordinator);
  }

  void load_bytes(const cairn::ReadItem& item, cairn::Value value) override {
    const std::lock_guard lock(mutex_);  // readers call from many threads
    const std::string& name = item.dest_index.fqn;
    if (name.starts_with("model.")) {
      state_->find("net")->get<cairn::Dict>().set(name.substr(6), std::move(value));
    } else {
      state_->set(name, std::move(value));
    }
  }

 private:
  cairn::StateDict* state_ = nullptr;
  cairn::StateDict renamed_;  // lives as long as the load
  std::mutex mutex_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: rename_on_load CHECKPOINT\n";
    return 2;
  }
  try {
    const cairn::Tensor w = cairn::Tensor::zeros(cairn::DType::kFloat32, {8, 8});
    cairn::StateDict state;
    state.set("net", cairn::Dict{{"w", w}});
    state.set("step", 0);

    RenamePlanner planner;
    planned_load(*cairn::Checkpoint::open(argv[1]), planner, state);

    float last = 0;
    std::memcpy(&last, w.bytes().data() + w.bytes().size() - sizeof last, sizeof last);
    std::cout << cairn::to_string(state) << "\n"
              << "last element of net.w: " << last << "\n";
  } catch (const cairn::Error& e) {
    std::cerr << "rename_on_load: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
