// The default planners on a TorchState: entries come cut, and what only Python can encode is asked of Python.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>

#include "cairn/error.h"
#include "cairn/planner.h"
#include "plans.h"
#include "state.h"

namespace cairn::python {

// Kept by Python from save to save, so that plans can be cached.
class TorchSavePlanner final : public DefaultSavePlanner {
 public:
  explicit TorchSavePlanner(SavePlannerOptions options) : DefaultSavePlanner(options) {}

  // For the next save: its state, how objects are encoded ((object) -> bytes), and what a subclass in Python
  // makes of an item before it is written ((fqn, offsets, sizes) -> bytes, a plain tensor, or None: it stays
  // as it is), or None. Both are asked in the thread of `caller`, if there is one.
  void begin(TorchState& state, nb::object encode, nb::object resolve, Caller* caller);
  // The next save fails on this rank, as planning begins: so all ranks hear of it.
  void fail(nb::handle exception);
  void end();

  void set_up_planner(const StateDict& state, const StorageMeta* storage_meta, bool is_coordinator) override;
  void expect(std::span<const WriteItem> items) override;
  std::optional<std::string> resolve_archive(const WriteItem& item) override;
  Value resolve_data(const WriteItem& item) override;

 protected:
  Flattened cut(const StateDict& values) const override { return state_->entries(values); }

 private:
  Resolved ask(const WriteItem& item);
  std::optional<std::string> encoded(const WriteItem& item);
  std::deque<Resolved>& mine();
  Resolved take();

  std::optional<Error> failure_;
  TorchState* state_ = nullptr;
  nb::object encode_;
  nb::object resolve_;
  Caller* caller_ = nullptr;
  bool resolves_ = false;
  LastingMemory lasting_;  // the state's, when it resolves
  std::mutex mutex_;
  // What Python gave, by the thread of the writer that asks for it next and in the order in which it does.
  std::unordered_map<std::thread::id, std::deque<Resolved>> ahead_;
};

class TorchLoadPlanner final : public DefaultLoadPlanner {
 public:
  TorchLoadPlanner(TorchState& state, LoadPlannerOptions options)
      : DefaultLoadPlanner(options), torch_(state) {}

  // As for saves.
  void fail(nb::handle exception);

  void set_up_planner(StateDict& state, const Metadata* metadata, bool is_coordinator) override;
  std::string* resolve_bytes(const ReadItem& item) override;
  void start_again() override { archives_.clear(); }
  bool plans_alone() const override { return true; }
  // The archives of the objects that were read, by name.
  std::unordered_map<std::string, std::string>& archives() { return archives_; }

 protected:
  Flattened cut(const StateDict& values, FlattenRule rule) const override;

 private:
  std::optional<Error> failure_;
  TorchState& torch_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::string> archives_;  // references stay valid while it grows
};

}  // namespace cairn::python
