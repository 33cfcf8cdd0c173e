// The steps of planning as functions: what the default planners are made of.
//
//   SavePlan mine = create_default_local_save_plan(flatten(state));
//   ... every rank's plan reaches the coordinator ...
//   GlobalSavePlan global = create_default_global_save_plan(dedup_save_plans(std::move(all), {}));
//
// All functions may be called by many threads at once. Plans come from other ranks: a plan that lies (a
// box outside its tensor, two sizes for one tensor, a number that overflows) is an Error that names the
// tensor and the rank, or a Problem of validate_global_plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/plan.h"

namespace cairn {

// --- saving ---

// The path of every entry: what a default local plan carries as planner_data.
PathMap paths_of(const Flattened& entries);

// One item per tensor, per local shard, per object, in the order of the entries. Tensors of a state that
// still lie in a file (StoredTensor) are Error(kUnsupported).
SavePlan create_default_local_save_plan(const Flattened& entries);

// Which of the ranks that hold an item writes it.
enum class DedupRule : std::uint8_t {
  kBalanced,     // the one with the fewest bytes to write so far; bytes as they are written
  kDcpBalanced,  // the same, but a shard counts as its whole tensor and an object as 1, as in DCP
  kLowestRank,
};

// Leaves each item (equal fqn and offset) in the plan of one rank. Items are decided in the order of
// their first appearance, rank 0 first; the lowest rank wins a tie; kept items keep their order. An item
// that stands twice in one plan stays there twice.
std::vector<SavePlan> dedup_save_plans(std::vector<SavePlan> all, DedupRule rule = DedupRule::kBalanced);

// When large tensor items are cut into several, along their slowest dimension.
struct SplitOptions {
  bool enabled = true;
  // 0: an eighth of the mean bytes a rank writes, but at least `least_bytes`.
  std::int64_t max_item_bytes = 0;
  std::int64_t least_bytes = std::int64_t{64} << 20;
  // Besides 64 for each item: a plan that lies about sizes makes no more work than this.
  std::int64_t most_pieces = std::int64_t{1} << 16;
  bool over_replicas = true;  // pieces go to all ranks that hold the item, else they stay with its writer
};

// Everything the default global step can be told.
struct GlobalPlanOptions {
  DedupRule dedup = DedupRule::kBalanced;
  SplitOptions split = {};
  bool allow_partial = false;  // parts of a tensor that nobody writes are no error (rank-local saves)
};

// Dedup and split in one step, so that pieces of a split item find the ranks that hold it. Ranks that say
// different things of one item are an Error (find_conflicts).
std::vector<SavePlan> balance_save_plans(std::vector<SavePlan> all, const GlobalPlanOptions& options);

// Describes what the (deduplicated) plans write: entries in the order of their first appearance, chunks
// in the order of the ranks, and each tensor item's hint set to its chunk's position. planner_data is
// the paths of all ranks, the lowest rank's where they differ. Error(kInvalidArgument) when an object or
// a whole tensor is there twice.
GlobalSavePlan create_default_global_save_plan(std::vector<SavePlan> all, bool rewrite_index_hints = true);

// One thing that is wrong with a set of plans.
struct PlanProblem {
  enum class Kind : std::uint8_t { kOutOfBounds, kOverlap, kHole, kDType, kSize, kExtent, kKind };
  Kind kind;
  std::string fqn;
  std::optional<int> rank;  // whose item it is, where one rank is to blame
  std::string text;         // one line for people
};

// Everything wrong with what the plans write, by tensor: chunks outside, chunks that overlap, parts that
// nobody writes (unless `allow_partial`), chunks of one tensor that differ in dtype or global size.
std::vector<PlanProblem> validate_global_plan(const std::vector<SavePlan>& plans, const Metadata& metadata,
                                              bool allow_partial = false);
// The same for plans before dedup: ranks that claim one index with different extents, dtypes or sizes.
std::vector<PlanProblem> find_conflicts(const std::vector<SavePlan>& all);

// The problems in one line: 500 characters, then how many more.
std::string to_string(const std::vector<PlanProblem>& problems);
// Throws Error(kInvalidArgument), "Failed to validate global plan: ...", when there are problems.
void require_valid(const std::vector<PlanProblem>& problems);

// --- unchanged plans ---

// Whether two plans write the same: items (dtypes too), hints, paths, usable. Not storage_data.
bool compare_save_plans(const SavePlan& a, const SavePlan& b);
// The cached plan where the delta says "as last time", else the delta. Error(kConflict) when there are
// not as many of both, or nothing cached stands behind an unusable delta.
std::vector<SavePlan> merge_delta_local_plans(const std::vector<SavePlan>& cached,
                                              std::vector<SavePlan> deltas);

// --- loading ---

// Whether every rank reads what it wants, or ranks that want the same bytes let one of them read it.
enum class ReplicaReads : std::uint8_t { kReadAll, kReadOnce };

// One item per stored piece of every wanted box, entries in order. `strict`: a name the checkpoint lacks
// is Error(kNotFound), "Missing key in checkpoint state_dict: ..."; otherwise it is left out. A tensor of
// another global size, or an object where the checkpoint has a tensor: Error(kInvalidArgument). The words
// are DCP's. An object in the checkpoint is read whatever stands in the state.
LoadPlan create_default_local_load_plan(const Flattened& entries, const Metadata& metadata,
                                        bool strict = true);

// As they are; every rank reads what it planned.
std::vector<LoadPlan> create_default_global_load_plan(std::vector<LoadPlan> all);

// Lets every byte be read once: items of several ranks that read the same part of the same chunk, or the
// same object, get one reader, the rank with the fewest bytes to read so far (the lowest of several).
// Items stay where they are; `shared` says who reads. With no metadata all elements count alike.
// With `reader`, that rank reads everything: what only others want is added to its plan.
std::vector<LoadPlan> share_reads(std::vector<LoadPlan> all, const Metadata* metadata,
                                  std::optional<int> reader = std::nullopt);

// The parts of the stored chunks that lie in the wanted boxes, in DCP's order: boxes by where they begin
// in the dimension that reaches farthest, chunks by where they end in it. n log n in chunks and boxes.
std::vector<ReadItem> create_read_items_for_chunk_list(const std::string& fqn,
                                                       const TensorStorageMetadata& stored,
                                                       const std::vector<Box>& wanted);

}  // namespace cairn
