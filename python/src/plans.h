// torch's items and results as the engine's, and the planners of Python's that stand behind finished plans.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "python.h"
#include "state.h"

namespace cairn::python {

// What Python gives for an item: the bytes of an archive, or a tensor, or neither when it leaves it as it
// was.
struct Resolved {
  std::optional<std::string> archive;
  std::optional<Tensor> tensor;
  bool is_as_it_was() const { return !archive && !tensor; }
};

// A plain tensor of Python's to be kept for a while: a copy, unless its memory lasts.
Tensor lasting_tensor(nb::object tensor, const LastingMemory& lasting);

// What Python gives for each of these, in one visit to the caller's thread, or in this one when there is
// none. Errors name the tensor.
std::vector<Resolved> ask_together(Caller* caller, std::span<const WriteItem> items,
                                   const std::function<Resolved(const WriteItem&)>& ask);

// The data of a finished plan's items, by a planner of Python's. Its hooks are called once for each item, one
// at a time, in the caller's thread; small tensors in groups, since a thread takes longer to wake than a hook
// to run. What they give is copied, unless it lies in the state's own tensors: the next call may use the
// memory again.
class HookedItems final : public SavePlanner {
 public:
  // `items` are torch's WriteItems; `encode(item, tensor)` gives the bytes of a tensor that the engine cannot
  // read as it stands, or that is not what the item says, or one that it can. All is asked of `caller`.
  HookedItems(nb::list items, nb::handle planner, nb::handle encode, Caller& caller);

  // Each with its position for a hint, so that it is known again.
  const SavePlan& plan() const { return plan_; }
  // torch's WriteResults, in the order of the items.
  nb::list results_of(const WrittenData& data) const;

  void set_up_planner(const StateDict&, const StorageMeta*, bool) override {}
  SavePlan create_local_plan() override { return {}; }
  GlobalSavePlan create_global_plan(std::vector<SavePlan>) override { return {}; }
  SavePlan finish_plan(SavePlan central) override { return central; }
  void expect(std::span<const WriteItem> items) override;
  std::optional<std::string> resolve_archive(const WriteItem& item) override;
  Value resolve_data(const WriteItem& item) override;

 private:
  Resolved ask(const WriteItem& item);

  nb::list items_;
  nb::handle planner_, encode_;
  Caller& caller_;
  SavePlan plan_;
  LastingMemory lasting_;  // the state's
  std::mutex mutex_;
  std::unordered_map<std::int64_t, Resolved> made_;  // by position, until the writer asks for it
};

// Where the items of a finished plan go, by a planner of Python's; likewise. Small tensors are read into
// memory of ours first: then the planner says where each goes and that it is there, one after the other.
class HookedDestinations final : public LoadPlanner {
 public:
  // `known` is what the checkpoint says of itself, or null.
  HookedDestinations(nb::list items, nb::handle planner, const Metadata* known, Caller& caller);

  const LoadPlan& plan() const { return plan_; }
  // Whether the items lie where `known` says, also by `places`: {MetadataIndex: _StorageInfo}, which may have
  // been changed since.
  bool lie_at(const Metadata& known, nb::handle places) const;
  // With the GIL held, when all is read: the planner gets what it has not got yet.
  void finish();

  void set_up_planner(StateDict&, const Metadata*, bool) override {}
  LoadPlan create_local_plan() override { return {}; }
  std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) override { return all; }
  LoadPlan finish_plan(LoadPlan central) override { return central; }
  void load_bytes(const ReadItem&, Value) override {}
  std::string* resolve_bytes(const ReadItem& item) override;
  bool load_archive(const ReadItem& item, std::string_view archive) override;
  TensorView resolve_tensor(const ReadItem& item) override;
  void commit_tensor(const ReadItem& item, const TensorView& tensor) override;

 private:
  struct Target {
    nb::object tensor;  // the planner's
    nb::object memory;  // which is read into: the same, if the engine can
  };
  nb::object ask(std::int64_t position);
  void bring(std::int64_t position, const Tensor& filled);
  void bring_filled(std::int64_t& at);

  nb::list items_;
  nb::handle planner_;
  Caller& caller_;
  LoadPlan plan_;
  std::vector<std::optional<DType>> small_types_;  // by position: as the elements of small ones are stored
  std::mutex mutex_;
  std::unordered_map<std::int64_t, Target> targets_;  // of large ones
  std::unordered_map<std::int64_t, Tensor> small_;    // that are being read
  std::vector<std::pair<std::int64_t, Tensor>> filled_;
  std::unordered_map<std::int64_t, std::string> archives_;
};

}  // namespace cairn::python
