#include "cairn/optimizer.h"

#include <fmt/core.h>

#include <set>

namespace cairn {
namespace {

// Which step of an entry's path names the parameter: optimizer / state / net.0.weight / exp_avg.
constexpr std::size_t kParameterStep = 2;

// Makes a state of what the optimizer left: this rank's shares, empty, for the load to fill.
class OptimizerPlanner final : public EmptyStateDictLoadPlanner {
 public:
  OptimizerPlanner(const std::string& key, const OptimizerOptions& options)
      : EmptyStateDictLoadPlanner(std::nullopt, options.load.plan), key_(key), options_(options) {
    const Group* group = options.load.no_dist ? nullptr : options.load.group;
    if (group == nullptr) return;
    rank_ = group->rank();
    ranks_ = group->size();
  }

  void set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) override {
    if (metadata != nullptr && !std::holds_alternative<PathMap>(metadata->planner_data)) {
      throw Error(ErrorCode::kUnsupported,
                  "the checkpoint does not say which of its entries are the optimizer's: it was saved by a "
                  "planner that leaves no paths; load it by names with load()");
    }
    EmptyStateDictLoadPlanner::set_up_planner(state, metadata, is_coordinator);
    if (state.empty()) fail_to_find_key();
  }

  bool plans_alone() const override { return options().replicas == ReplicaReads::kReadAll; }

 protected:
  std::optional<Value> place_for(const std::string& fqn, const Path* path,
                                 const StorageMetadata& stored) override {
    if (path == nullptr || path->empty()) return std::nullopt;
    if (to_string(path->front()) != key_) {
      others_.insert(to_string(path->front()));
      return std::nullopt;
    }
    const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
    if (tensor == nullptr) return Value();
    const DType dtype = tensor->properties.dtype;
    if (tensor->size.numel() == 1) return Tensor::empty(dtype, tensor->size);
    try {
      return Value(share_of(*path, dtype, tensor->size));
    } catch (Error& e) {
      e.of_tensor(fqn);
      throw;
    }
  }

 private:
  ShardedTensor share_of(const Path& path, DType dtype, const Shape& global) const {
    const ParameterLayout* layout = layout_of(path);
    if (layout == nullptr) return share_by_mesh(MeshLayout{{ranks_}, {Placement::shard(0)}}, dtype, global);
    if (const auto* mesh = std::get_if<MeshLayout>(layout)) return share_by_mesh(*mesh, dtype, global);
    ShardedTensor share{dtype, global, {}};
    for (const Box& box : std::get<std::vector<Box>>(*layout)) {
      if (!Box::whole(global).contains(box)) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("the parameter's part {} is not inside its stored state of shape {}: the model "
                        "is not the one that was saved",
                        to_string(box), to_string(global)));
      }
      share.shards.push_back({box, Tensor::empty(dtype, box.sizes)});
    }
    return share;
  }

  ShardedTensor share_by_mesh(const MeshLayout& layout, DType dtype, const Shape& global) const {
    return layout.shard(Tensor::empty(dtype, layout.box(global, rank_).sizes), global, rank_);
  }

  // Null: to be cut by rows.
  const ParameterLayout* layout_of(const Path& path) const {
    if (options_.parameters.empty() || path.size() <= kParameterStep) return nullptr;
    const std::string parameter = to_string(path[kParameterStep]);
    const auto found = options_.parameters.find(parameter);
    if (found != options_.parameters.end()) return &found->second;
    if (options_.cut_unknown) return nullptr;
    throw Error(ErrorCode::kNotFound,
                fmt::format("the checkpoint has optimizer state of a parameter '{}' for which there is no "
                            "layout: add one, or set cut_unknown",
                            parameter));
  }

  [[noreturn]] void fail_to_find_key() const {
    std::string there;
    for (const std::string& name : others_) there += fmt::format("{}'{}'", there.empty() ? "" : ", ", name);
    throw Error(ErrorCode::kNotFound, fmt::format("nothing in the checkpoint begins with '{}'; there are: {}",
                                                  key_, there.empty() ? "no entries" : there));
  }

  const std::string key_;
  const OptimizerOptions& options_;
  std::set<std::string> others_;  // first steps of the paths that are not the optimizer's
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace

StateDict load_sharded_optimizer_state_dict(const std::string& optimizer_key, const std::string& id,
                                            const OptimizerOptions& options) {
  if (options.load.planner != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "the optimizer's state is planned here: `load.planner` must be null");
  }
  OptimizerPlanner planner(optimizer_key, options);
  LoadOptions load_options = options.load;
  load_options.planner = &planner;
  StateDict state;
  load(state, id, load_options);
  return state;
}

}  // namespace cairn
