// Saving a TorchState: now, or in the background.

#include <filesystem>
#include <memory>
#include <utility>

#include "cairn/async.h"
#include "cairn/cairn.h"
#include "cairn/error.h"
#include "group.h"
#include "options.h"
#include "planners.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

nb::dict to_python(SaveResult result) {
  log_warnings(result.warnings);
  nb::dict report;
  report["save_id"] = to_str(to_string(result.save_id));
  report["bytes"] = result.bytes;
  report["plan_bytes"] = result.plan_bytes;
  report["bytes_exchanged"] = result.bytes_exchanged;
  report["warnings"] = nb::cast(result.warnings);
  report["metadata"] = nb::cast(std::const_pointer_cast<Metadata>(result.metadata));
  return report;
}

// Ends the planner's use of a state, whatever happens.
class Begun {
 public:
  explicit Begun(TorchSavePlanner& planner) : planner_(planner) {}
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  ~Begun() { planner_.end(); }

 private:
  TorchSavePlanner& planner_;
};

nb::dict save_now(TorchState& state, TorchSavePlanner& planner, const std::filesystem::path& path,
                  std::optional<PythonGroup*> group, nb::object encode, nb::object resolve,
                  nb::dict options) {
  std::atomic<bool> cancelled = false;
  SaveOptions save_options;
  apply(options, save_options);
  save_options.group = group.value_or(nullptr);
  save_options.planner = &planner;
  save_options.cancelled = &cancelled;
  Caller caller;
  planner.begin(state, std::move(encode), std::move(resolve), &caller);
  const Begun begun(planner);
  SaveResult result;
  caller.run(
      [&] {
        const auto turn = turn_of(group.value_or(nullptr));
        result = save(state.flat(), path.string(), save_options);
      },
      cancelled);
  return to_python(std::move(result));
}

// What a save in the background uses, for as long as it does: also when nobody waits for it any more.
std::shared_ptr<const void> kept(nb::object state, nb::object planner) {
  struct Kept {
    nb::object state, planner;
  };
  return {new Kept{std::move(state), std::move(planner)}, [](const Kept* kept) {
            if (Py_IsInitialized() == 0) return;  // the interpreter has ended, and takes all with it
            nb::gil_scoped_acquire acquire;
            nb::cast<TorchSavePlanner&>(kept->planner).end();
            delete kept;
          }};
}

// One save in the background.
class Pending {
 public:
  Pending(nb::object saver, SaveHandle handle) : saver_(std::move(saver)), handle_(std::move(handle)) {}
  SaveHandle& handle() { return handle_; }

 private:
  nb::object saver_;
  SaveHandle handle_;
};

// The background saves of one process group.
class Saver {
 public:
  Saver(nb::object group, nb::dict options) : group_(std::move(group)) {
    AsyncOptions async;
    if (!group_.is_none()) async.save.group = nb::cast<PythonGroup*>(group_);
    for (const auto& [key, value] : options) {
      const std::string name = nb::cast<std::string>(key);
      if (name == "overlapped")
        async.mode = nb::cast<bool>(value) ? StagingMode::kOverlapped : StagingMode::kBlocking;
      else if (name == "budget")
        async.staging.budget = nb::cast<std::uint64_t>(value);
      else if (name == "max_in_flight")
        async.max_in_flight = nb::cast<int>(value);
      else if (name == "nice")
        async.nice = nb::cast<int>(value);
      else
        throw Error(ErrorCode::kInvalidArgument, "there is no option '" + name + "'");
    }
    group_of_all_ = async.save.group;
    saver_ = std::make_unique<AsyncSaver>(std::move(async));
  }

  std::unique_ptr<Pending> save(nb::object self, nb::object state, nb::object planner,
                                const std::filesystem::path& path, nb::object encode, nb::object resolve,
                                nb::dict options) {
    auto& torch_state = nb::cast<TorchState&>(state);
    auto& torch_planner = nb::cast<TorchSavePlanner&>(planner);
    SaveOptions save_options;
    apply(options, save_options);
    torch_planner.begin(torch_state, std::move(encode), std::move(resolve), nullptr);
    save_options.keep = kept(std::move(state), std::move(planner));
    save_options.group = group_of_all_;
    save_options.planner = &torch_planner;
    std::optional<SaveHandle> handle;
    {
      nb::gil_scoped_release release;
      drain();  // how the one before ended is told by its own future, and by no other
      handle = saver_->async_save(torch_state.flat(), path.string(), save_options);
      save_options.keep.reset();
    }
    return std::make_unique<Pending>(std::move(self), *std::move(handle));
  }

  // Until no save is under way. Failures are for those who wait for the saves themselves.
  void drain() {
    try {
      saver_->wait();
    } catch (const Error&) {
    }
  }
  void guard() { (void)saver_->guard(); }
  void prepare(TorchState& state) { saver_->prepare(state.flat()); }
  ~Saver() {
    nb::gil_scoped_release release;
    saver_.reset();
  }

 private:
  nb::object group_;
  Group* group_of_all_ = nullptr;
  std::unique_ptr<AsyncSaver> saver_;
};

nb::dict wait(Pending& pending) {
  SaveResult result;
  {
    nb::gil_scoped_release release;
    result = pending.handle().wait();
  }
  return to_python(std::move(result));
}

nb::dict progress(Pending& pending) {
  const SaveProgress now = pending.handle().progress();
  nb::dict report;
  report["phase"] = to_str(name_of(now.phase));
  report["staged"] = now.staged;
  report["to_stage"] = now.to_stage;
  report["written"] = now.written;
  report["to_write"] = now.to_write;
  return report;
}

}  // namespace

void bind_save(nb::module_& m) {
  nb::class_<TorchSavePlanner>(m, "SavePlanner")
      .def(
          "__init__",
          [](TorchSavePlanner* self, bool flatten, bool lowest_rank, bool cache, bool allow_partial,
             bool split) {
            SavePlannerOptions options;
            options.flatten_state_dict = flatten;
            options.dedup_save_to_lowest_rank = lowest_rank;
            options.enable_plan_caching = cache;
            options.global.allow_partial = allow_partial;
            options.global.split.enabled = split;
            new (self) TorchSavePlanner(options);
          },
          "flatten"_a, "lowest_rank"_a, "cache"_a, "allow_partial"_a, "split"_a)
      .def("fail", &TorchSavePlanner::fail, "exception"_a);

  m.def("save", save_now, "state"_a, "planner"_a, "path"_a, "group"_a.none(), "encode"_a, "resolve"_a.none(),
        "options"_a);

  nb::class_<Pending>(m, "Pending")
      .def("wait", wait)
      .def(
          "wait_staged", [](Pending& self) { self.handle().wait_staged(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("done", [](Pending& self) { return self.handle().done(); })
      .def("cancel", [](Pending& self) { self.handle().cancel(); })
      .def("progress", progress);

  nb::class_<Saver>(m, "Saver")
      .def(nb::init<nb::object, nb::dict>(), "group"_a.none(), "options"_a)
      .def(
          "save",
          [](nb::object self, nb::object state, nb::object planner, const std::filesystem::path& path,
             nb::object encode, nb::object resolve, nb::dict options) {
            return nb::cast<Saver&>(self).save(self, std::move(state), std::move(planner), path,
                                               std::move(encode), std::move(resolve), std::move(options));
          },
          "state"_a, "planner"_a, "path"_a, "encode"_a, "resolve"_a.none(), "options"_a)
      .def("drain", &Saver::drain, nb::call_guard<nb::gil_scoped_release>())
      .def("prepare", &Saver::prepare, "state"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("guard", &Saver::guard, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace cairn::python
