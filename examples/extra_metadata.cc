// Puts data of every rank into the metadata: attached to the local plan, collected by the coordinator.
#include <cairn/cairn.h>
#include <cairn/checkpoint.h>
#include <cairn/planner.h>

#include <iostream>

class NotesPlanner : public cairn::DefaultSavePlanner {
 public:
  explicit NotesPlanner(cairn::Value note) : note_(std::move(note)) {}

  cairn::SavePlan create_local_plan() override {
    cairn::SavePlan plan = DefaultSavePlanner::create_local_plan();
    plan.planner_data = note_;  // in place of the paths
    return plan;
  }

  cairn::GlobalSavePlan create_global_plan(std::vector<cairn::SavePlan> all) override {
    cairn::List notes;
    for (const cairn::SavePlan& plan : all) notes.push_back(std::get<cairn::Value>(plan.planner_data));
    cairn::GlobalSavePlan global = DefaultSavePlanner::create_global_plan(std::move(all));
    cairn::Metadata metadata = *global.metadata;  // shared: a copy to change
    metadata.planner_data = cairn::Value(std::move(notes));
    global.metadata = std::make_shared<const cairn::Metadata>(std::move(metadata));
    return global;
  }

 private:
  cairn::Value note_;
};

int main() {
  cairn::run_ranks(2, [](cairn::Group& group) {
    NotesPlanner planner(cairn::Dict{{"rank", group.rank()}, {"host", "a"}});
    cairn::save({{"step", 7}}, "memory://notes", {.group = &group, .planner = &planner});
  });
  const auto checkpoint = cairn::Checkpoint::open("memory://notes");
  std::cout << cairn::to_string(std::get<cairn::Value>(checkpoint->metadata()->planner_data)) << "\n";
}
