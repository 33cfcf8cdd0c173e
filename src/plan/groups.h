// The items of all ranks, grouped: which ranks hold the same piece of state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/pod_vector.h"
#include "cairn/plan.h"
#include "plan/item_tables.h"

namespace cairn {

// Items are numbered through all plans, rank 0's first; groups in the order of their first item.
// The plans must share their tables (join_tables) and must not change while this lives.
class ItemGroups {
 public:
  explicit ItemGroups(const std::vector<SavePlan>& all);

  std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  std::uint32_t item_count() const { return static_cast<std::uint32_t>(members_.size()); }
  // The items of a group, ascending, and so the ranks that hold it.
  std::span<const std::uint32_t> operator[](std::uint32_t group) const {
    return {members_.data() + starts_[group], starts_[group + 1] - starts_[group]};
  }
  std::uint32_t first_item(std::size_t rank) const { return bases_[rank]; }
  std::uint32_t rank_of(std::uint32_t item) const { return ranks_[item]; }
  const ItemRow& row(std::uint32_t item) const {
    const std::uint32_t rank = ranks_[item];
    return rows_[rank][item - bases_[rank]];
  }

 private:
  PodVector<std::uint32_t> bases_;    // by rank: its first item
  std::vector<const ItemRow*> rows_;  // by rank
  PodVector<std::uint32_t> ranks_;    // by item
  PodVector<std::uint32_t> starts_;
  PodVector<std::uint32_t> members_;
};

}  // namespace cairn
