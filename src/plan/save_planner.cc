#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/hash.h"
#include "base/name_table.h"
#include "base/trial.h"
#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "cairn/planner.h"
#include "plan/wire.h"

namespace cairn {
namespace {

using Digest = std::array<std::byte, 16>;

Flattened top_level(const StateDict& state) {
  Flattened entries;
  for (const auto& [key, value] : state) entries.push_back({to_string(key), {key}, value});
  return entries;
}

// Everything a plan depends on. Names, kinds, shapes, dtypes, boxes, order and paths are in the encoding.
Digest digest_of(const SavePlan& plan, const SavePlannerOptions& options, int world_size,
                 PlanEncoder& encoder) {
  std::string bytes = encoder.encode(PlanMessage::kLocalPlan, plan, 0, 1);
  put(bytes, static_cast<std::int32_t>(world_size));
  for (const bool flag :
       {options.flatten_state_dict, options.dedup_save_to_lowest_rank, options.global.split.enabled,
        options.global.split.over_replicas, options.global.allow_partial}) {
    put(bytes, static_cast<std::uint8_t>(flag));
  }
  put(bytes, static_cast<std::uint8_t>(options.global.dedup));
  put(bytes, options.global.split.max_item_bytes);
  put(bytes, options.global.split.least_bytes);
  return xxh3_128(as_bytes(bytes));
}

SavePlan unchanged(const Digest& digest) {
  SavePlan plan = SavePlan::unchanged();
  plan.planner_data = Value(Bytes{std::string(as_text(digest))});
  return plan;
}

// The live tensor of an item's chunk, out of the piece of memory that holds it.
Value narrowed(const WriteItem& item, const Tensor& tensor, const Box& held) {
  const Box& chunk = item.tensor_data->chunk;
  if (chunk == held) return tensor;
  Box part = chunk;
  for (std::size_t dim = 0; dim < part.rank(); ++dim) part.offsets[dim] -= held.offsets[dim];
  return Tensor(tensor.view().narrow(part), tensor.owner());
}

[[noreturn]] void refuse_changed(const WriteItem& item) {
  throw Error(ErrorCode::kConflict, "the tensor is not what the plan says: it changed since the save began")
      .of_tensor(item.index.fqn)
      .while_doing("resolving the data of an item");
}

}  // namespace

// What the planner remembers. Rank and coordinator each keep the last save that came through, no more.
struct DefaultSavePlanner::Cache {
  NameTable names;  // of the entries: a name's number is its entry's
  PlanEncoder encoder;

  // On every rank.
  std::optional<Digest> pending;  // of the plan made last; becomes `digest` when the plan is finished
  std::optional<Digest> digest;
  SavePlan finished;
  bool unfinished = false;  // a plan was made and never finished: the other ranks may remember otherwise

  // On the coordinator.
  std::vector<SavePlan> local_plans;
  std::vector<Digest> digests;
  std::vector<SavePlan> global_plans;
  std::shared_ptr<const Metadata> metadata;

  void forget() {
    digest.reset();
    finished = {};
    forget_global();
  }
  void forget_global() {
    local_plans.clear();
    digests.clear();
    global_plans.clear();
    metadata.reset();
  }
};

std::optional<std::string> SavePlanner::resolve_archive(const WriteItem&) { return std::nullopt; }

DefaultSavePlanner::DefaultSavePlanner(SavePlannerOptions options)
    : options_(options), cache_(std::make_unique<Cache>()) {
  if (options_.dedup_save_to_lowest_rank) options_.global.dedup = DedupRule::kLowestRank;
}

DefaultSavePlanner::~DefaultSavePlanner() = default;

Flattened DefaultSavePlanner::cut(const StateDict& state) const {
  return options_.flatten_state_dict ? flatten(state) : top_level(state);
}

void DefaultSavePlanner::set_world_size(int ranks) { world_size_ = ranks; }

void DefaultSavePlanner::set_up_planner(const StateDict& state, const StorageMeta*, bool is_coordinator) {
  is_coordinator_ = is_coordinator;
  entries_ = cut(state);
  cache_->names = {};
  for (const FlatEntry& entry : entries_) cache_->names.intern(entry.name);
  if (cache_->unfinished) cache_->forget();
}

SavePlan DefaultSavePlanner::create_local_plan() {
  SavePlan plan = create_default_local_save_plan(entries_);
  if (options_.flatten_state_dict) plan.planner_data = paths_of(entries_);
  if (!options_.enable_plan_caching) return plan;
  cache_->unfinished = true;
  cache_->pending = digest_of(plan, options_, world_size_, cache_->encoder);
  if (cache_->digest == cache_->pending) return unchanged(*cache_->pending);
  return plan;
}

GlobalSavePlan DefaultSavePlanner::make_global_plan(std::vector<SavePlan> all) const {
  GlobalSavePlan global =
      create_default_global_save_plan(balance_save_plans(std::move(all), options_.global));
  require_valid(validate_global_plan(global.plans, *global.metadata, options_.global.allow_partial));
  return global;
}

// The rank says "as last time": the last time must be the same for both.
void DefaultSavePlanner::require_remembered(const SavePlan& plan, std::size_t rank) const {
  const auto* value = std::get_if<Value>(&plan.planner_data);
  const auto* digest = value == nullptr ? nullptr : value->get_if<Bytes>();
  if (digest == nullptr || digest->data == as_text(cache_->digests[rank])) return;
  throw Error(ErrorCode::kConflict,
              "the rank's plan is \"as last time\", and its last time is not the coordinator's: save again")
      .on_rank(static_cast<int>(rank))
      .while_doing("making the global plan");
}

GlobalSavePlan DefaultSavePlanner::create_global_plan(std::vector<SavePlan> all) {
  if (!options_.enable_plan_caching) return make_global_plan(std::move(all));
  Cache& cache = *cache_;
  std::vector<bool> changed;
  bool any_changed = false;
  try {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      changed.push_back(all[rank].usable);
      any_changed = any_changed || changed.back();
      if (!changed.back() && cache.digests.size() == all.size()) require_remembered(all[rank], rank);
    }
    std::vector<SavePlan> deltas = all;
    if (any_changed && cache.local_plans.empty()) cache.local_plans.resize(all.size(), SavePlan::unchanged());
    const bool other_world = cache.local_plans.size() != all.size();
    const bool all_changed = std::find(changed.begin(), changed.end(), false) == changed.end();
    if (!other_world || !all_changed) all = merge_delta_local_plans(cache.local_plans, std::move(all));
    if (!any_changed) {
      return {std::move(deltas), cache.metadata};
    }
    GlobalSavePlan global = make_global_plan(all);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const bool same = !changed[rank] && compare_save_plans(global.plans[rank], cache.global_plans[rank]);
      deltas[rank] = same ? SavePlan::unchanged() : global.plans[rank];
    }
    std::vector<Digest> digests;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      digests.push_back(changed[rank] ? digest_of(all[rank], options_, world_size_, cache.encoder)
                                      : cache.digests[rank]);
    }
    cache.local_plans = std::move(all);
    cache.digests = std::move(digests);
    cache.global_plans = std::move(global.plans);
    cache.metadata = global.metadata;
    return {std::move(deltas), std::move(global.metadata)};
  } catch (...) {
    cache.forget_global();
    throw;
  }
}

SavePlan DefaultSavePlanner::finish_plan(SavePlan central) {
  if (!options_.enable_plan_caching) return central;
  Cache& cache = *cache_;
  if (central.usable) {
    cache.finished = central;
  } else if (!cache.digest) {
    throw Error(ErrorCode::kConflict,
                "the coordinator's plan is \"as last time\", and there was no last time")
        .while_doing("finishing a plan");
  } else {
    central.items = cache.finished.items;
    central.planner_data = cache.finished.planner_data;
    central.usable = true;
    // The writer's own data may be new (file names of this save); if it says nothing, the old holds.
    if (central.storage_data.is<None>()) central.storage_data = cache.finished.storage_data;
  }
  cache.digest = std::exchange(cache.pending, std::nullopt);
  cache.unfinished = false;
  return central;
}

void DefaultSavePlanner::release_state() noexcept {
  entries_.clear();
  cache_->names = {};
}

Value DefaultSavePlanner::resolve_data(const WriteItem& item) {
  return transform_object(item, lookup_object(item.index));
}

Value DefaultSavePlanner::lookup_object(const MetadataIndex& index) {
  const auto entry = cache_->names.find(index.fqn);
  if (!entry) {
    throw Error(ErrorCode::kNotFound, "the state has no such entry")
        .of_tensor(index.fqn)
        .while_doing("resolving the data of an item");
  }
  return entries_[*entry].value;
}

Value DefaultSavePlanner::transform_object(const WriteItem& item, Value object) {
  if (!item.tensor_data) return object;
  const Box& chunk = item.tensor_data->chunk;
  if (const Tensor* tensor = object.get_if<Tensor>()) {
    const Box whole = Box::whole(tensor->view().shape);
    if (whole.rank() != chunk.rank() || !whole.contains(chunk)) refuse_changed(item);
    return narrowed(item, *tensor, whole);
  }
  if (const ShardedTensor* sharded = object.get_if<ShardedTensor>()) {
    for (const LocalShard& shard : sharded->shards) {
      if (shard.box.rank() == chunk.rank() && shard.box.contains(chunk)) {
        return narrowed(item, shard.data, shard.box);
      }
    }
  }
  refuse_changed(item);
}

}  // namespace cairn
