// What a DefaultLoadPlanner keeps between its steps.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/name_table.h"
#include "cairn/planner.h"
#include "plan/checkpoint_index.h"

namespace cairn {

struct DefaultLoadPlanner::State {
  LoadPlannerOptions options;
  StateDict* original = nullptr;
  bool rebuilt = false;  // the state was made from the checkpoint: its entries are the checkpoint's
  bool old_keys = false;
  const Metadata* metadata = nullptr;
  std::unique_ptr<CheckpointIndex> index;
  Flattened entries;
  NameTable names;  // of the entries, in order
  LoadReport report;
  std::mutex placing;                // objects arrive from many threads
  std::vector<std::size_t> arrived;  // entries whose objects have

  void set_entries(Flattened flat);
  const FlatEntry* find(std::string_view fqn) const;
  void place(const FlatEntry& entry, Value value);
  // `cut_as_before` cuts the state by the rule of torch 2.3.
  LoadPlan plan(const std::function<Flattened()>& cut_as_before);

 private:
  void look_for_old_keys(const std::function<Flattened()>& cut_as_before);
  bool may_be_absent(const FlatEntry& entry) const;
  void add_missing(const FlatEntry& entry);
  void add_tensor(const FlatEntry& entry, std::size_t position, LoadPlan& plan);
};

}  // namespace cairn
