// The optimizer's part of a checkpoint, of which every rank reads its own share and no more.
//
//   OptimizerOptions options;
//   options.load.group = &group;
//   options.parameters["net.0.weight"] = MeshLayout{{2, 2}, {Placement::shard(0), Placement::shard(1)}};
//   StateDict state = load_sharded_optimizer_state_dict("optimizer", "run/step-1000", options);
//   // state: {"optimizer": {"state": {"net.0.weight": {"exp_avg": a ShardedTensor, "step": a Tensor}}, ...}}
//
// Any number of ranks may have saved it, cut in any way.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/layout.h"

namespace cairn {

// How this job cuts a parameter: the boxes of it that this rank has, or the mesh that says so for all ranks.
using ParameterLayout = std::variant<std::vector<Box>, MeshLayout>;

struct OptimizerOptions {
  LoadOptions load = {};
  // By parameter. The state of a parameter (its momentum, say) is cut as the parameter is.
  std::map<std::string, ParameterLayout> parameters = {};
  // What becomes of state whose parameter is not among `parameters`, when there are any: cut by rows over the
  // group, as all is when there are none, or Error(kNotFound).
  bool cut_unknown = false;
};

// The entries whose path begins with `optimizer_key`, as a new nested state. Tensors of one element are whole
// on every rank, objects too; all others are ShardedTensors with the rank's part, or none of it.
//
// Collective like load(). Error(kNotFound) when nothing begins with that key, with those there are;
// Error(kInvalidArgument) when a layout does not fit the stored tensor; Error(kUnsupported) when the
// checkpoint has no paths.
StateDict load_sharded_optimizer_state_dict(const std::string& optimizer_key, const std::string& id,
                                            const OptimizerOptions& options = {});

}  // namespace cairn
