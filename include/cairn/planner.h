// Planners: the steps that turn a state into plans, each of which may be replaced.
//
// A save or a load calls one planner on each rank, in the order the methods stand here. The defaults do
// what torch.distributed.checkpoint's do; a subclass replaces a step and leaves the rest. The free
// functions behind the defaults are in cairn/plan_steps.h.
//
//   struct Half : DefaultSavePlanner {        // save float32 as float16
//     Value transform_object(const WriteItem& item, Value object) override { ... }
//   };
//
// Threads: a planner belongs to one save or load at a time. set_up_planner, create_local_plan,
// create_global_plan and finish_plan are called one after the other by one thread; the methods that move
// data (resolve_data; load_bytes, resolve_bytes, resolve_tensor, commit_tensor) by many at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "cairn/load_report.h"
#include "cairn/plan.h"
#include "cairn/plan_steps.h"

namespace cairn {

// What a rank writes, and the data behind each item.
class SavePlanner {
 public:
  virtual ~SavePlanner() = default;

  // Before anything else, when it is known before the plans meet: how many ranks save together. A plan that
  // is remembered is for one number only.
  virtual void set_world_size(int /*ranks*/) {}

  // First, on every rank. The state is borrowed until the save ends. `storage_meta` is what the storage
  // says of itself, or null.
  virtual void set_up_planner(const StateDict& state, const StorageMeta* storage_meta,
                              bool is_coordinator) = 0;

  // On every rank: everything this rank could write, replicated state too. The result travels to the
  // coordinator.
  virtual SavePlan create_local_plan() = 0;

  // On the coordinator: the plans of all ranks, by rank. Decides who writes what and describes the
  // checkpoint. Plan i of the result travels back to rank i.
  virtual GlobalSavePlan create_global_plan(std::vector<SavePlan> all) = 0;

  // On every rank: the rank's part of the global plan. What it returns is written.
  virtual SavePlan finish_plan(SavePlan central) = 0;

  // On every rank, once or more often per item of the finished plan, from the writer's threads at the
  // same time: the live tensor of exactly the item's chunk (any device, any strides), or the object.
  virtual Value resolve_data(const WriteItem& item) = 0;

  // Asked before resolve_data, likewise: the item's bytes as they are to stand in the file, a whole archive
  // of torch.save, from a planner that knows better than the engine how to encode it.
  virtual std::optional<std::string> resolve_archive(const WriteItem& item);

  // The small tensors that this thread of the writer asks for next, in this order. Who has to go far for each
  // may fetch them together. When the save fails, some are not asked for.
  virtual void expect(std::span<const WriteItem> /*items*/) {}

  // Last, on every rank, also when the save failed: the state is no longer borrowed. Who keeps tensors of it
  // lets them go, because their memory may be wanted for the next snapshot.
  virtual void release_state() noexcept {}
};

struct SavePlannerOptions {
  bool flatten_state_dict = true;          // nested dicts become entries "a.b"
  bool dedup_save_to_lowest_rank = false;  // replicated state goes to the lowest rank that has it
  bool enable_plan_caching = false;        // an unchanged plan is not sent and not made again
  GlobalPlanOptions global = {};           // how replicas are balanced, large items split, gaps allowed
};

// The planner of a plain save(). Subclasses mostly override lookup_object or transform_object.
class DefaultSavePlanner : public SavePlanner {
 public:
  explicit DefaultSavePlanner(SavePlannerOptions options = {});
  ~DefaultSavePlanner() override;

  void set_world_size(int ranks) override;
  void set_up_planner(const StateDict& state, const StorageMeta* storage_meta, bool is_coordinator) override;
  SavePlan create_local_plan() override;
  GlobalSavePlan create_global_plan(std::vector<SavePlan> all) override;
  SavePlan finish_plan(SavePlan central) override;
  void release_state() noexcept override;
  Value resolve_data(const WriteItem& item) override;  // transform_object(item, lookup_object(index))

  // The entry that an item comes from: a Tensor, a ShardedTensor, or an object. Error(kNotFound).
  virtual Value lookup_object(const MetadataIndex& index);
  // What is written for an item: the tensor of its chunk, or the object as it is. May convert, but a
  // change of dtype or shape must also be said in the local plan.
  virtual Value transform_object(const WriteItem& item, Value object);

 protected:
  const SavePlannerOptions& options() const { return options_; }
  const Flattened& entries() const { return entries_; }  // the state, cut into entries
  // How the state is cut. For states that were cut elsewhere already.
  virtual Flattened cut(const StateDict& state) const;
  bool is_coordinator() const { return is_coordinator_; }

 private:
  struct Cache;
  GlobalSavePlan make_global_plan(std::vector<SavePlan> all) const;
  void require_remembered(const SavePlan& plan, std::size_t rank) const;

  SavePlannerOptions options_;
  Flattened entries_;
  bool is_coordinator_ = false;
  int world_size_ = 0;
  std::unique_ptr<Cache> cache_;
};

// What a rank reads, and where it goes.
class LoadPlanner {
 public:
  virtual ~LoadPlanner() = default;

  // First, on every rank. The state is borrowed until the load ends and is filled in place. `metadata` is
  // null when the storage has none.
  virtual void set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) = 0;

  virtual LoadPlan create_local_plan() = 0;                                         // on every rank
  virtual std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) = 0;  // on the coordinator
  virtual LoadPlan finish_plan(LoadPlan central) = 0;                               // on every rank

  // From the reader's threads, many at once, items in any order: an object's value arrives.
  virtual void load_bytes(const ReadItem& item, Value value) = 0;
  // Memory for an object's raw bytes, a whole archive of torch.save; nullptr by default: use load_bytes.
  virtual std::string* resolve_bytes(const ReadItem& item);
  // A tensor's archive that only torch can read: quantised, sparse, of a class of its own. Returns true when
  // the planner has taken it from there, to its destination and to the end; false, by default: the load
  // fails.
  virtual bool load_archive(const ReadItem& item, std::string_view archive);
  // The destination of a tensor item: exactly `lengths` large. Then, when it is filled, commit_tensor
  // with the same view.
  virtual TensorView resolve_tensor(const ReadItem& item) = 0;
  virtual void commit_tensor(const ReadItem& item, const TensorView& tensor) = 0;

  // The checkpoint was replaced while it was read, and set_up_planner comes again: objects that have arrived
  // are taken back, so that the state is cut as it was. What tensors hold is overwritten.
  virtual void start_again() {}

  // Whether create_global_plan changes nothing, on any rank: then the plans need not travel.
  virtual bool plans_alone() const { return false; }

  // What the state and the checkpoint have of each other, from a planner that compares them.
  virtual const LoadReport& report() const;
};

struct LoadPlannerOptions {
  bool flatten_state_dict = true;
  bool allow_partial_load = false;  // keys the checkpoint lacks stay as they are
  LoadReportOptions report = {};    // `missing` is kIgnore when partial loads are allowed and it is kError
  ReplicaReads replicas = ReplicaReads::kReadAll;
};

// The planner of a plain load(). Subclasses mostly override lookup_tensor or transform_tensor.
class DefaultLoadPlanner : public LoadPlanner {
 public:
  explicit DefaultLoadPlanner(LoadPlannerOptions options = {});
  ~DefaultLoadPlanner() override;

  void set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) override;
  LoadPlan create_local_plan() override;
  std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) override;
  LoadPlan finish_plan(LoadPlan central) override;
  void load_bytes(const ReadItem& item, Value value) override;
  TensorView resolve_tensor(const ReadItem& item) override;
  void commit_tensor(const ReadItem& item, const TensorView& tensor) override;
  void start_again() override;
  bool plans_alone() const override;  // of the classes here; a subclass says it for itself

  // The destination that `index` names: the whole tensor, or the whole shard. Error(kNotFound).
  virtual TensorView lookup_tensor(const MetadataIndex& index);
  // The part of it that the item fills. May give other memory of that shape instead, of any dtype; then
  // commit_tensor brings it home.
  virtual TensorView transform_tensor(const ReadItem& item, const TensorView& tensor);

  const LoadReport& report() const override;  // of the last create_local_plan, also when it threw
  const LoadPlannerOptions& options() const;

 protected:
  // How the state is cut into entries, under either rule. For states that were cut elsewhere already.
  virtual Flattened cut(const StateDict& state, FlattenRule rule) const;

  struct State;
  std::unique_ptr<State> state_;
};

// Builds the state from the checkpoint: give it an empty StateDict and it holds all that was saved, or
// the entries that `keys` name (exact flat names, or dotted prefixes of the stored paths).
class EmptyStateDictLoadPlanner : public DefaultLoadPlanner {
 public:
  explicit EmptyStateDictLoadPlanner(std::optional<std::vector<std::string>> keys = std::nullopt,
                                     LoadPlannerOptions options = {});

  void set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) override;

 protected:
  // What an entry is read into; nullopt: it is not wanted. By default a new tensor of its size, or None for
  // an object, if `keys` name it. `path` is null when the checkpoint does not say it.
  virtual std::optional<Value> place_for(const std::string& fqn, const Path* path,
                                         const StorageMetadata& stored);

 private:
  std::optional<std::unordered_set<std::string>> keys_;
};

// Takes the destination's word for what the checkpoint holds, for storages that have no metadata: every
// tensor is there, whole, with the destination's size.
class DynamicMetaLoadPlanner : public DefaultLoadPlanner {
 public:
  using DefaultLoadPlanner::DefaultLoadPlanner;
  void set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) override;

 private:
  Metadata metadata_;
};

}  // namespace cairn
