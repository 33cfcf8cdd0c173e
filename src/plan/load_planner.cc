#include <fmt/format.h>

#include <algorithm>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "cairn/error.h"
#include "cairn/planner.h"
#include "plan/load_state.h"
#include "plan/torch_words.h"
#include "state/path.h"

namespace cairn {
namespace {

// The entries of a state that is not to be flattened: its own.
Flattened top_entries(const StateDict& state) {
  Flattened entries;
  for (const auto& [key, value] : state) entries.push_back({to_string(key), {key}, value});
  return entries;
}

const Tensor& find_shard(const ShardedTensor& tensor, const MetadataIndex& index) {
  if (!index.offset) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("Cannot lookup {} since its a ShardedTensor and no offset was provided", index.fqn));
  }
  const auto hint = static_cast<std::uint64_t>(index.index.value_or(-1));
  if (hint < tensor.shards.size() && tensor.shards[hint].box.offsets == *index.offset)
    return tensor.shards[hint].data;
  for (const LocalShard& shard : tensor.shards) {
    if (shard.box.offsets == *index.offset) return shard.data;
  }
  throw Error(ErrorCode::kNotFound, fmt::format("Could not find shard at '{}' for FQN: '{}'",
                                                torch_size(*index.offset), index.fqn));
}

}  // namespace

std::string* LoadPlanner::resolve_bytes(const ReadItem&) { return nullptr; }

bool LoadPlanner::load_archive(const ReadItem&, std::string_view) { return false; }

DefaultLoadPlanner::DefaultLoadPlanner(LoadPlannerOptions options) : state_(std::make_unique<State>()) {
  state_->options = options;
}

DefaultLoadPlanner::~DefaultLoadPlanner() = default;

void DefaultLoadPlanner::set_up_planner(StateDict& state, const Metadata* metadata, bool) {
  state_->original = &state;
  state_->metadata = metadata;
  state_->index = metadata == nullptr ? nullptr : std::make_unique<CheckpointIndex>(*metadata);
  state_->rebuilt = false;
  state_->old_keys = false;
  state_->set_entries(cut(state, FlattenRule::kCurrent));
}

Flattened DefaultLoadPlanner::cut(const StateDict& state, FlattenRule rule) const {
  return state_->options.flatten_state_dict ? flatten(state, rule) : top_entries(state);
}

LoadPlan DefaultLoadPlanner::create_local_plan() {
  return state_->plan([this] { return cut(*state_->original, FlattenRule::kTorch23); });
}

bool DefaultLoadPlanner::plans_alone() const {
  const std::type_info& kind = typeid(*this);
  const bool ours = kind == typeid(DefaultLoadPlanner) || kind == typeid(EmptyStateDictLoadPlanner);
  return ours && state_->options.replicas == ReplicaReads::kReadAll;
}

std::vector<LoadPlan> DefaultLoadPlanner::create_global_plan(std::vector<LoadPlan> all) {
  if (state_->options.replicas == ReplicaReads::kReadOnce)
    return share_reads(std::move(all), state_->metadata);
  return create_default_global_load_plan(std::move(all));
}

LoadPlan DefaultLoadPlanner::finish_plan(LoadPlan central) { return central; }

void DefaultLoadPlanner::load_bytes(const ReadItem& item, Value value) {
  const FlatEntry* entry = state_->find(item.dest_index.fqn);
  if (entry == nullptr) {
    throw Error(ErrorCode::kNotFound, fmt::format("Could not find FQN: '{}'", item.dest_index.fqn));
  }
  const std::lock_guard lock(state_->placing);
  state_->arrived.push_back(static_cast<std::size_t>(entry - state_->entries.data()));
  state_->place(*entry, std::move(value));
}

void DefaultLoadPlanner::start_again() {
  if (state_->original == nullptr) return;
  if (state_->rebuilt) *state_->original = {};
  if (!state_->rebuilt)
    for (const std::size_t i : state_->arrived) state_->place(state_->entries[i], state_->entries[i].value);
  state_->arrived.clear();
}

TensorView DefaultLoadPlanner::resolve_tensor(const ReadItem& item) {
  return transform_tensor(item, lookup_tensor(item.dest_index));
}

void DefaultLoadPlanner::commit_tensor(const ReadItem&, const TensorView&) {}

TensorView DefaultLoadPlanner::lookup_tensor(const MetadataIndex& index) {
  const FlatEntry* entry = state_->find(index.fqn);
  if (entry == nullptr) throw Error(ErrorCode::kNotFound, fmt::format("Could not find FQN: '{}'", index.fqn));
  if (const auto* sharded = entry->value.get_if<ShardedTensor>()) return find_shard(*sharded, index).view();
  const auto* tensor = entry->value.get_if<Tensor>();
  const bool whole =
      tensor != nullptr && (!index.offset || *index.offset == Shape(tensor->view().shape.rank(), 0));
  if (whole) return tensor->view();
  throw Error(ErrorCode::kNotFound,
              fmt::format("FQN: '{}' is not a ShardedTensor, can't find by offset: '{}'", index.fqn,
                          index.offset ? torch_size(*index.offset) : "None"));
}

TensorView DefaultLoadPlanner::transform_tensor(const ReadItem& item, const TensorView& tensor) {
  return tensor.narrow({item.dest_offsets, item.lengths});
}

const LoadReport& LoadPlanner::report() const {
  static const LoadReport kNothing;
  return kNothing;
}

const LoadReport& DefaultLoadPlanner::report() const { return state_->report; }

const LoadPlannerOptions& DefaultLoadPlanner::options() const { return state_->options; }

EmptyStateDictLoadPlanner::EmptyStateDictLoadPlanner(std::optional<std::vector<std::string>> keys,
                                                     LoadPlannerOptions options)
    : DefaultLoadPlanner(options) {
  if (keys) keys_.emplace(keys->begin(), keys->end());
}

namespace {

// A key names an entry by its flat name, or by the beginning of its path.
bool includes(const std::unordered_set<std::string>& keys, const std::string& fqn, const Path* path) {
  if (keys.contains(fqn)) return true;
  if (path == nullptr) return false;
  std::string prefix;
  for (std::size_t i = 0; i < path->size(); ++i) {
    if (i > 0) prefix += '.';
    prefix += to_string((*path)[i]);
    if (keys.contains(prefix)) return true;
  }
  return false;
}

NameTable names_of(const PathMap& paths) {
  NameTable names;
  for (std::size_t i = 0; i < paths.size(); ++i) names.intern(paths.fqn(i));
  return names;
}

}  // namespace

std::optional<Value> EmptyStateDictLoadPlanner::place_for(const std::string& fqn, const Path* path,
                                                          const StorageMetadata& stored) {
  if (keys_ && !includes(*keys_, fqn, path)) return std::nullopt;
  const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
  return tensor == nullptr ? Value() : Value(Tensor::empty(tensor->properties.dtype, tensor->size));
}

void EmptyStateDictLoadPlanner::set_up_planner(StateDict& state, const Metadata* metadata, bool) {
  if (!state.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the state must be empty: it is built from the checkpoint");
  }
  if (metadata == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "a state cannot be built without the checkpoint's metadata");
  }
  const auto* paths = std::get_if<PathMap>(&metadata->planner_data);
  const NameTable path_names = paths == nullptr ? NameTable() : names_of(*paths);
  const bool by_position = paths != nullptr && path_names.size() == paths->size();  // no name twice
  Flattened entries;
  Value root(std::move(state));
  std::uint64_t padding = kMaxPadding + 64 * metadata->state_dict_metadata.size();  // over all of them
  for (const auto& [fqn, stored] : metadata->state_dict_metadata) {
    std::optional<Path> path;
    if (const auto at = path_names.find(fqn)) path = by_position ? paths->path(*at) : *paths->find(fqn);
    std::optional<Value> value = place_for(fqn, path ? &*path : nullptr, stored);
    if (!value) continue;
    entries.push_back({fqn, path ? std::move(*path) : Path{fqn}, *value});
    place(root, entries.back().path, std::move(*value), padding);
  }
  state = std::move(root.get<Dict>());
  // Cutting the new state into entries again could give other ones: a list of which only some were wanted.
  state_->original = &state;
  state_->metadata = metadata;
  state_->index = std::make_unique<CheckpointIndex>(*metadata);
  state_->rebuilt = true;
  state_->old_keys = false;
  state_->set_entries(std::move(entries));
}

}  // namespace cairn
