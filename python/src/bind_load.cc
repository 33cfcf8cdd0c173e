// Loading into a TorchState.

#include <utility>

#include "cairn/cairn.h"
#include "group.h"
#include "options.h"
#include "planners.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

// Returns (report, {name: archive}): the tensors are filled, the objects are still to be unpickled.
nb::tuple load_now(TorchState& state, const std::string& path, std::optional<PythonGroup*> group,
                   nb::dict options) {
  std::atomic<bool> cancelled = false;  // a load is not cancelled; the signal waits for its end
  LoadOptions load_options;
  apply(options, load_options);
  load_options.group = group.value_or(nullptr);
  TorchLoadPlanner planner(state, load_options.plan);
  load_options.planner = &planner;
  StateDict values = state.flat();
  LoadResult result;
  run_interruptibly([&] { result = load(values, path, load_options); }, cancelled);
  nb::dict report;
  report["needed"] = result.read.needed;
  report["read"] = result.read.read;
  report["verified"] = result.read.verified;
  report["unverified"] = result.read.unverified;
  nb::dict archives;
  for (const auto& [name, archive] : planner.archives()) archives[to_str(name)] = to_bytes(archive);
  return nb::make_tuple(report, archives);
}

}  // namespace

void bind_load(nb::module_& m) {
  m.def("load", load_now, "state"_a, "path"_a, "group"_a.none(), "options"_a);
}

}  // namespace cairn::python
