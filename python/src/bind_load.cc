// Loading into a TorchState.

#include <filesystem>
#include <utility>

#include "cairn/cairn.h"
#include "cairn/torch_save.h"
#include "group.h"
#include "options.h"
#include "planners.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

// Takes "torch_save" out of the options: who reads a file of torch.save, "every rank" or the "coordinator".
// Null without it.
std::unique_ptr<StorageReader> torch_save_reader_of(nb::dict& options, const std::filesystem::path& path) {
  if (!options.contains("torch_save")) return nullptr;
  const std::string who = to_text(options["torch_save"]);
  options = nb::cast<nb::dict>(options.attr("copy")());
  options.attr("pop")("torch_save");
  return torch_save_reader(path.string(),
                           {.who = who == "coordinator" ? FileReads::kCoordinator : FileReads::kEveryRank});
}

// With a `failure` the load fails on all ranks, for this one's exception. When the tensors are filled,
// `finish` is called with {name: archive} of the objects, which are still to be unpickled: what it raises
// reaches all ranks.
nb::dict load_now(TorchState& state, const std::filesystem::path& path, std::optional<PythonGroup*> group,
                  nb::dict options, nb::object failure, nb::object finish) {
  std::atomic<bool> cancelled = false;  // a load is not cancelled; the signal waits for its end
  LoadOptions load_options;
  const std::unique_ptr<StorageReader> file = torch_save_reader_of(options, path);
  apply(options, load_options);
  load_options.reader = file.get();
  load_options.group = group.value_or(nullptr);
  TorchLoadPlanner planner(state, load_options.plan);
  if (!failure.is_none()) planner.fail(failure);
  load_options.planner = &planner;
  StateDict values = state.flat();
  LoadResult result;
  Caller caller;
  load_options.finish = [&] {
    caller.call([&] {
      nb::dict archives;
      for (const auto& [name, archive] : planner.archives()) archives[to_str(name)] = to_bytes(archive);
      finish(archives);
    });
  };
  caller.run(
      [&] {
        const auto turn = turn_of(group.value_or(nullptr));
        result = load(values, path.string(), load_options);
      },
      cancelled);
  log_warnings(result.warnings);
  nb::dict report;
  report["restarts"] = result.read.restarts;
  report["needed"] = result.read.needed;
  report["read"] = result.read.read;
  report["verified"] = result.read.verified;
  report["unverified"] = result.read.unverified;
  return report;
}

}  // namespace

void bind_load(nb::module_& m) {
  m.def("load", load_now, "state"_a, "path"_a, "group"_a.none(), "options"_a, "failure"_a.none(), "finish"_a);
}

}  // namespace cairn::python
