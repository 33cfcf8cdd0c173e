#include "plan/groups.h"

#include "cairn/error.h"
#include "plan/key_table.h"

namespace cairn {

ItemGroups::ItemGroups(const std::vector<SavePlan>& all) {
  std::uint64_t count = 0;
  for (const SavePlan& plan : all) {
    bases_.push_back(static_cast<std::uint32_t>(count));
    rows_.push_back(plan.items.rows().rows.data());
    count += plan.items.size();
  }
  if (count >= kNoEntry) throw Error(ErrorCode::kLimit, "the plans of all ranks hold more than 2^32 items");
  ranks_.reserve(count);
  PodVector<std::uint32_t> group_of;
  group_of.reserve(count);
  KeyTable keys;
  keys.reserve(count / 2);  // room that is not used costs next to nothing, growing does
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    // Ranks mostly hold alike things in the same order: what is replicated is where it was before.
    const std::uint32_t* before = rank == 0 ? nullptr : group_of.data() + bases_[rank - 1];
    const std::size_t known = rank == 0 ? 0 : all[rank - 1].items.size();
    const auto& rows = all[rank].items.rows().rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t key = rows[i].key();
      const bool same = i < known && keys[before[i]] == key;
      ranks_.push_back(static_cast<std::uint32_t>(rank));
      group_of.push_back(same ? before[i] : keys.intern(key));
    }
  }
  // A counting sort of the items by group keeps them in order inside each.
  starts_.resize(std::size_t{keys.size()} + 1, 0);
  for (const std::uint32_t group : group_of) ++starts_[group + 1];
  for (std::size_t group = 1; group < starts_.size(); ++group) starts_[group] += starts_[group - 1];
  members_.extend(count);
  for (std::uint32_t item = 0; item < count; ++item) members_[starts_[group_of[item]]++] = item;
  for (std::size_t group = starts_.size() - 1; group > 0; --group) starts_[group] = starts_[group - 1];
  starts_[0] = 0;
}

}  // namespace cairn
