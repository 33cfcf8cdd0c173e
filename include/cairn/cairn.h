// START HERE: save and load.
//
// Many ranks save one checkpoint together; any other number of ranks, cut in any other way, loads it. The
// files are PyTorch's (torch.distributed.checkpoint).
//
//   StateDict state;
//   state.set("model", Dict{{"w", Value(layout.shard(mine, {4096, 4096}, group.rank()))}});
//   state.set("step", Value(1000));
//   save(state, "run/step-1000", {.group = &group});
//   ...
//   load(state, "run/step-1000", {.group = &group});        // into the tensors that are there
//   StateDict all = load_into_new("run/step-1000");         // or into new ones, with no group at all
//
// All functions are collective over the group: every rank calls them with the same id and options. When one
// rank fails, every rank gets the same CheckpointError. Several saves may run at once if their groups and ids
// differ.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/checkpoint.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/error.h"
#include "cairn/group.h"
#include "cairn/planner.h"
#include "cairn/state_dict.h"

namespace cairn {

struct SaveOptions {
  Group* group = nullptr;    // the ranks that save together; null: this process alone
  int coordinator_rank = 0;  // of the group
  bool no_dist = false;      // alone, whatever `group` is
  // false: every rank writes files and metadata of its own and nobody coordinates, but all wait for each
  // other at the end. Loads read such a checkpoint too.
  bool use_collectives = true;
  SavePlanner* planner =
      nullptr;  // null: a DefaultSavePlanner. One that is kept from save to save can cache plans
  StorageWriter* writer = nullptr;              // null: dcp_writer in `files`, with `write`
  std::shared_ptr<FileSystem> files = nullptr;  // null: the folder that the id names, which is made
  WriteOptions write = {};
  std::chrono::nanoseconds deadline = std::chrono::minutes(30);  // of the whole save
  ProgressCallback progress = {};
  // Another thread may set it: the save then stops soon with Error(kCancelled), on all ranks, and the old
  // checkpoint stays. Too late once all is written. Null: cannot be cancelled.
  const std::atomic<bool>* cancelled = nullptr;
  // Owns what the pointers here lead to, if nobody else does: a save in the background holds it until it has
  // ended, also one that async_save refused.
  std::shared_ptr<const void> keep = nullptr;
};

struct SaveResult {
  SaveId save_id{};
  // The checkpoint's description; on the coordinator only (on every rank without collectives).
  std::shared_ptr<const Metadata> metadata;
  std::uint64_t bytes = 0;            // this rank wrote
  std::uint64_t plan_bytes = 0;       // this rank sent and received to agree on the plan
  std::uint64_t bytes_exchanged = 0;  // the same, results and checksums included
  std::vector<std::string> warnings;  // of this rank's writer (OnLowSpace::kWarn)
  std::string announcement;           // the coordinator's writer's; of a collective save
};

// When it returns, the checkpoint is there on every rank, whole, and with `durable` it survives a loss of
// power. When it throws, the checkpoint that was there before is still there, whole.
SaveResult save(const StateDict& state, const std::string& id, const SaveOptions& options = {});

struct LoadOptions {
  Group* group = nullptr;
  int coordinator_rank = 0;
  bool no_dist = false;
  LoadPlanner* planner = nullptr;                     // null: a DefaultLoadPlanner with `plan`
  StorageReader* reader = nullptr;                    // null: dcp_reader in `files`, with `read`
  std::shared_ptr<const FileSystem> files = nullptr;  // null: the folder that the id names
  LoadPlannerOptions plan = {};
  ReadOptions read = {};
  std::chrono::nanoseconds deadline = std::chrono::minutes(30);
  ProgressCallback progress = {};
  // Filled as the load goes on, and right also when it throws: what was read, what was already written to.
  ReadReport* report = nullptr;
  // Called last, on every rank or on none, when this rank has all its data. What it throws fails on all
  // ranks.
  std::function<void()> finish = {};
};

struct LoadResult {
  ReadReport read;    // this rank's
  LoadReport report;  // what the state and the checkpoint disagree about; of the default planner only
  std::vector<std::string> warnings;  // of the reader; on the coordinator only
};

// Fills the tensors of `state` in place and replaces its objects. All of them come from one save: when the
// checkpoint is overwritten meanwhile, all ranks begin again, up to five times; then Error(kConflict).
LoadResult load(StateDict& state, const std::string& id, const LoadOptions& options = {});

// A new state with all that was saved, or with the entries that `keys` name (flat names, or the beginning of
// a path: "model.layers"). Every rank of the group gets all of it.
StateDict load_into_new(const std::string& id,
                        const std::optional<std::vector<std::string>>& keys = std::nullopt,
                        const LoadOptions& options = {});

// Something that knows how to give and take its own state, like a model or an optimizer.
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual StateDict state_dict() = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
};

// A state of which some top-level entries are Stateful. A save asks them for their state in the order they
// were added; a load does so sorted by name, so that all ranks do it in the same order, and gives each the
// loaded state back.
//
//   AppState app;
//   app.add("model", model);          // a Stateful
//   app.add("step", Value(step));
//   save(app, "run/step-1000", {.group = &group});
class AppState {
 public:
  void add(std::string name, Stateful& part);
  void add(std::string name, Value value);
  const Value* find(std::string_view name) const;  // a plain entry's value; nullptr when there is none

 private:
  StateDict expand() const;  // asks every Stateful

  friend class AsyncSaver;
  friend SaveResult save(AppState& state, const std::string& id, const SaveOptions& options);
  friend LoadResult load(AppState& state, const std::string& id, const LoadOptions& options);
  std::vector<std::pair<std::string, std::variant<Value, Stateful*>>> parts_;
};

SaveResult save(AppState& state, const std::string& id, const SaveOptions& options = {});
LoadResult load(AppState& state, const std::string& id, const LoadOptions& options = {});

}  // namespace cairn
