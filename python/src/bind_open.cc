// Saves and loads with code of the caller's in them: a planner, a storage, or both.
//
// The engine's steps are the same as for its own: one class is planner and storage at once, and each step
// calls the hooks of cairn/torch/_open.py. What hooks make for other ranks travels as pickles, between ranks
// of one job.

#include <utility>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/error.h"
#include "group.h"
#include "metadata.h"
#include "options.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

std::string pickled(nb::handle object) {
  static PyObject* dumps = nb::object(nb::module_::import_("pickle").attr("dumps")).release().ptr();
  return std::string(bytes_of(nb::object(nb::handle(dumps)(object, -1))));
}

nb::object unpickled(std::string_view bytes) {
  static PyObject* loads = nb::object(nb::module_::import_("pickle").attr("loads")).release().ptr();
  return nb::handle(loads)(to_bytes(bytes));
}

// Objects of Python's on their way from step to step: as bytes where there are other ranks, else as they are.
class Parcels {
 public:
  void set_travels(bool travels) { travels_ = travels; }

  Value pack(nb::handle object) {
    if (travels_) return Value(Bytes{pickled(object)});
    kept_ = nb::borrow(object);
    return Value(Bytes{});
  }
  nb::object unpack(const Value& packed) const {
    const Bytes* bytes = packed.get_if<Bytes>();
    if (bytes == nullptr) throw Error(ErrorCode::kCorrupt, "a plan between ranks makes no sense");
    return travels_ ? unpickled(bytes->data) : kept_;
  }

  // Plans of all ranks by a hook that takes and gives a list of them.
  template <class Plan> std::vector<Plan> replan(const std::vector<Plan>& all, nb::handle hook) {
    nb::list plans;
    for (const Plan& plan : all) plans.append(unpack(plan.storage_data));
    const nb::object made = hook(plans);
    std::vector<Plan> answers;
    for (nb::handle plan : made) {
      answers.emplace_back();
      answers.back().storage_data = pack(plan);
    }
    if (answers.size() == all.size()) return answers;
    throw Error(ErrorCode::kInvalidArgument, "the planner or the storage made " +
                                                 std::to_string(answers.size()) + " plans for " +
                                                 std::to_string(all.size()) + " ranks");
  }

 private:
  bool travels_ = false;
  nb::object kept_;
};

// Plans of Python's are as many objects as there are items.
void plan_by(Caller& caller, const std::function<void()>& plan) {
  caller.call([&] {
    const WithoutCollector pause;
    plan();
  });
}

// All nb::objects in it are touched by the caller's thread alone, with the GIL held.
class OpenSave final : public SavePlanner, public StorageWriter {
 public:
  OpenSave(Caller& caller, nb::handle hooks) : caller_(caller), hooks_(hooks) {}

  void set_up_storage_writer(const WriterRole& role) override {
    role_ = role;
    caller_.call([&] { parcels_.set_travels(role.collective && role.world_size > 1); });
  }
  void set_up_planner(const StateDict&, const StorageMeta*, bool) override {}  // create_local_plan does both

  SavePlan create_local_plan() override {
    SavePlan plan;
    plan_by(caller_, [&] { plan.storage_data = parcels_.pack(hooks_.attr("local_plan")(role_)); });
    return plan;
  }
  GlobalSavePlan create_global_plan(std::vector<SavePlan> all) override {
    GlobalSavePlan global;
    plan_by(caller_, [&] { global.plans = parcels_.replan(all, hooks_.attr("global_plan")); });
    global.metadata = std::make_shared<Metadata>();  // the hooks keep their own
    return global;
  }
  SavePlan finish_plan(SavePlan central) override { return central; }
  Value resolve_data(const WriteItem&) override { throw Error(ErrorCode::kInternal, "items are the hooks'"); }

  WrittenData write_data(const SavePlan& plan, SavePlanner&) override {
    WrittenData data;
    caller_.call([&] {
      const nb::object results = hooks_.attr("write")(parcels_.unpack(plan.storage_data));
      data.attachment = parcels_.pack(results).get<Bytes>().data;
    });
    return data;
  }
  void finish(Metadata&, std::vector<WrittenData> all) override {
    plan_by(caller_, [&] {
      nb::list results;
      for (WrittenData& rank : all) results.append(parcels_.unpack(Value(Bytes{std::move(rank.attachment)})));
      const nb::object told = hooks_.attr("finish")(results);
      if (!told.is_none()) announcement_ = pickled(told);
    });
  }
  std::string announcement() override { return announcement_; }

  void retire_collective() override {
    caller_.call([&] { hooks_.attr("retire_collective")(); });
  }
  void abandon() noexcept override {
    try {
      caller_.call([&] { hooks_.attr("abandon")(); });
    } catch (...) {
      // What it wrote lies about; why the save failed counts.
    }
  }
  bool is_published() override {
    bool published = false;
    caller_.call([&] { published = nb::cast<bool>(hooks_.attr("is_published")()); });
    return published;
  }

 private:
  Caller& caller_;
  nb::handle hooks_;
  Parcels parcels_;
  WriterRole role_;
  std::string announcement_;
};

// `hooks` is an OpenSave of cairn/torch/_open.py. Returns the report; "told" is what its finish() returned on
// the coordinator, None if that was None.
nb::dict save_with_hooks(nb::object hooks, std::optional<PythonGroup*> group, nb::dict options) {
  std::atomic<bool> cancelled = false;
  Caller caller;
  OpenSave open(caller, hooks);
  SaveOptions save_options;
  apply(options, save_options);
  save_options.group = group.value_or(nullptr);
  save_options.planner = &open;
  save_options.writer = &open;
  save_options.cancelled = &cancelled;
  SaveResult result;
  caller.run(
      [&] {
        const auto turn = turn_of(group.value_or(nullptr));
        result = save(StateDict(), "", save_options);
      },
      cancelled);
  nb::dict report;
  report["plan_bytes"] = result.plan_bytes;
  report["bytes_exchanged"] = result.bytes_exchanged;
  report["told"] = result.announcement.empty() ? nb::none() : unpickled(result.announcement);
  return report;
}

// As OpenSave.
class OpenLoad final : public LoadPlanner, public StorageReader {
 public:
  OpenLoad(Caller& caller, nb::handle hooks) : caller_(caller), hooks_(hooks) {}

  std::string fetch_description() override {
    std::string description;
    caller_.call([&] { description = bytes_of(nb::object(hooks_.attr("describe")())); });
    return description;
  }
  const Metadata& set_up_storage_reader(std::string description, const ReaderRole& role) override {
    description_ = std::move(description);
    role_ = role;
    caller_.call([&] { parcels_.set_travels(role.world_size > 1); });
    return metadata_;
  }
  bool plans_alone() const override { return false; }
  void set_up_planner(StateDict&, const Metadata*, bool) override {}

  LoadPlan create_local_plan() override {
    LoadPlan plan;
    plan_by(caller_, [&] {
      plan.storage_data = parcels_.pack(hooks_.attr("local_plan")(to_bytes(description_), role_));
    });
    return plan;
  }
  std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) override {
    std::vector<LoadPlan> plans;
    plan_by(caller_, [&] { plans = parcels_.replan(all, hooks_.attr("global_plan")); });
    return plans;
  }
  LoadPlan finish_plan(LoadPlan central) override { return central; }
  void read_data(const LoadPlan& plan, LoadPlanner&, ReadReport&) override {
    caller_.call([&] { hooks_.attr("read")(parcels_.unpack(plan.storage_data)); });
  }

  bool was_replaced(const Error* error) override {
    bool replaced = false;
    caller_.call([&] { replaced = nb::cast<bool>(hooks_.attr("was_replaced")(error != nullptr)); });
    return replaced;
  }

  void load_bytes(const ReadItem&, Value) override { refuse(); }
  TensorView resolve_tensor(const ReadItem&) override { refuse(); }
  void commit_tensor(const ReadItem&, const TensorView&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw Error(ErrorCode::kInternal, "items are the hooks'"); }

  Caller& caller_;
  nb::handle hooks_;
  Parcels parcels_;
  ReaderRole role_;
  std::string description_;
  Metadata metadata_;  // the hooks have their own
};

int load_with_hooks(nb::object hooks, std::optional<PythonGroup*> group, nb::dict options) {
  std::atomic<bool> cancelled = false;  // a load is not cancelled; the signal waits for its end
  Caller caller;
  OpenLoad open(caller, hooks);
  LoadOptions load_options;
  apply(options, load_options);
  load_options.group = group.value_or(nullptr);
  load_options.planner = &open;
  load_options.reader = &open;
  int restarts = 0;
  caller.run(
      [&] {
        const auto turn = turn_of(group.value_or(nullptr));
        StateDict none;
        restarts = load(none, "", load_options).read.restarts;
      },
      cancelled);
  return restarts;
}

}  // namespace

void bind_open(nb::module_& m) {
  nb::class_<WriterRole>(m, "WriterRole")
      .def(
          "__init__",
          [](WriterRole* self, const std::string& save_id, int rank, int world_size, bool is_coordinator,
             bool collective) {
            new (self) WriterRole();
            self->save_id = to_save_id(save_id);
            self->rank = rank;
            self->world_size = world_size;
            self->is_coordinator = is_coordinator;
            self->collective = collective;
          },
          "save_id"_a, "rank"_a, "world_size"_a, "is_coordinator"_a, "collective"_a)
      .def_prop_ro("save_id", [](const WriterRole& self) { return to_string(self.save_id); })
      .def_ro("rank", &WriterRole::rank)
      .def_ro("world_size", &WriterRole::world_size)
      .def_ro("is_coordinator", &WriterRole::is_coordinator)
      .def_ro("collective", &WriterRole::collective);
  nb::class_<ReaderRole>(m, "ReaderRole")
      .def(
          "__init__",
          [](ReaderRole* self, int rank, int world_size, bool is_coordinator) {
            new (self) ReaderRole();
            self->rank = rank;
            self->world_size = world_size;
            self->is_coordinator = is_coordinator;
          },
          "rank"_a = 0, "world_size"_a = 1, "is_coordinator"_a = true)
      .def_ro("rank", &ReaderRole::rank)
      .def_ro("world_size", &ReaderRole::world_size)
      .def_ro("is_coordinator", &ReaderRole::is_coordinator);
  m.def("save_with_hooks", save_with_hooks, "hooks"_a, "group"_a.none(), "options"_a);
  m.def("load_with_hooks", load_with_hooks, "hooks"_a, "group"_a.none(), "options"_a);
}

}  // namespace cairn::python
