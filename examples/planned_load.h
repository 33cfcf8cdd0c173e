// The steps of a load on one rank, written out: what a planner is asked, and in which order.
#pragma once

#include <string>

#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "cairn/planner.h"

// Reads the part of a stored chunk that an item names.
inline cairn::Tensor read_part(const cairn::Checkpoint& checkpoint, const cairn::ReadItem& item) {
  cairn::Selection selection;
  for (std::size_t d = 0; d < item.lengths.rank(); ++d) {
    selection.push_back({(*item.storage_index.offset)[d] + item.storage_offsets[d], item.lengths[d], 1});
  }
  return checkpoint.read(item.storage_index.fqn, selection);
}

inline void planned_load(const cairn::Checkpoint& checkpoint, cairn::LoadPlanner& planner,
                         cairn::StateDict& state) {
  planner.set_up_planner(state, checkpoint.metadata(), true);
  std::vector<cairn::LoadPlan> all = planner.create_global_plan({planner.create_local_plan()});
  const cairn::LoadPlan plan = planner.finish_plan(std::move(all.at(0)));
  for (const cairn::ReadItem& item : plan.items) {
    if (item.type == cairn::LoadItemType::kByteIO) {
      planner.load_bytes(item, checkpoint.object(item.storage_index.fqn));
      continue;
    }
    const cairn::TensorView destination = planner.resolve_tensor(item);
    cairn::copy(read_part(checkpoint, item).view(), destination);
    planner.commit_tensor(item, destination);
  }
}
