// save DIR SPEC, load DIR SPEC, load-optimizer DIR SPEC: a state that is known from its description alone, by
// ranks that are threads.
//
// SPEC is JSON: {"ranks": 4, "tensors": [{"name": "a.w", "dtype": "float32", "shape": [4, 8], "seed": 1,
// "mesh": [2, 2], "cuts": [0, 1]}...], "objects": {...}, options}. `cuts` has the dimension that each mesh
// dimension cuts, -1 for none; without `mesh` every rank has the whole tensor. Byte k of a tensor, in
// row-major order, is ((seed * 31 + k * 7919) >> 3) & 255. Options of save: "zstd", "files", "collectives",
// "checksums", "low_space": "ignore". load fills such a state, compares every byte and prints what it read as
// one line. load-optimizer takes {"ranks", "key", "parameters": {name: {"mesh", "cuts"}}} and prints, a line
// for each rank, the float32 shards that came: {name: [[offsets, values]...]}.
#include <fmt/format.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "cairn/cairn.h"
#include "cairn/layout.h"
#include "cairn/optimizer.h"
#include "probe.h"
#include "probe_json.h"

namespace {

using nlohmann::ordered_json;
using namespace cairn;

Tensor pattern(const ordered_json& spec) {
  Tensor tensor = Tensor::empty(dtype_from(spec["dtype"]), shape_from(spec["shape"]));
  std::uint64_t k = spec["seed"].get<std::uint64_t>() * 31;
  for (std::byte& b : tensor.bytes()) {
    b = static_cast<std::byte>(k >> 3);
    k += 7919;
  }
  return tensor;
}

MeshLayout layout_from(const ordered_json& spec) {
  MeshLayout layout{Mesh(shape_from(spec["mesh"])), {}};
  for (const int cut : spec["cuts"])
    layout.placements.push_back(cut < 0 ? Placement::replicate()
                                        : Placement::shard(static_cast<std::size_t>(cut)));
  return layout;
}

// An object of a spec, which is plain JSON.
Value object_from(const ordered_json& j) {
  if (j.is_object()) {
    Dict dict;
    for (const auto& [key, value] : j.items()) dict.set(key, object_from(value));
    return Value(std::move(dict));
  }
  if (j.is_array()) {
    List list;
    for (const ordered_json& value : j) list.push_back(object_from(value));
    return Value(std::move(list));
  }
  return value_from(j);
}

// The same entries with nothing in them.
Value emptied(const ordered_json& j) {
  if (!j.is_object()) return Value(0);
  Dict dict;
  for (const auto& [key, value] : j.items()) dict.set(key, emptied(value));
  return Value(std::move(dict));
}

// Rank `rank`'s part of a tensor, filled or empty.
Value part_of(const ordered_json& spec, int rank, bool filled) {
  const Tensor whole = pattern(spec);
  if (!spec.contains("mesh"))
    return Value(filled ? whole : Tensor::zeros(whole.view().dtype, whole.view().shape));
  const MeshLayout layout = layout_from(spec);
  const Box box = layout.box(whole.view().shape, rank);
  const Tensor mine = Tensor::zeros(whole.view().dtype, box.sizes);
  if (filled && !box.empty()) copy(whole.view().narrow(box), mine.view());
  return Value(layout.shard(mine, whole.view().shape, rank));
}

Path path_of(std::string name) {
  Path path;
  for (std::size_t dot; (dot = name.find('.')) != std::string::npos; name.erase(0, dot + 1))
    path.emplace_back(name.substr(0, dot));
  path.emplace_back(name);
  return path;
}

StateDict state_of(const ordered_json& spec, int rank, bool filled) {
  StateDict state;
  for (const ordered_json& tensor : spec["tensors"])
    set_element(state, path_of(tensor["name"]), part_of(tensor, rank, filled));
  for (const auto& [key, value] : spec["objects"].items())
    state.set(key, filled ? object_from(value) : emptied(value));
  return state;
}

bool same(const Value& a, const Value& b) {
  const auto *x = a.get_if<ShardedTensor>(), *y = b.get_if<ShardedTensor>();
  if (x == nullptr || y == nullptr) return a == b;
  if (x->shards.size() != y->shards.size()) return false;
  for (std::size_t i = 0; i < x->shards.size(); ++i)
    if (x->shards[i].box != y->shards[i].box || !(Value(x->shards[i].data) == Value(y->shards[i].data)))
      return false;
  return true;
}

void require_same(const StateDict& got, const StateDict& expected, int rank) {
  const Flattened a = flatten(got), b = flatten(expected);
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && a[i].name == b[i].name && same(a[i].value, b[i].value)) continue;
    throw Error(ErrorCode::kCorrupt, "it is not what was saved").of_tensor(b.at(i).name).on_rank(rank);
  }
}

ordered_json spec_from(const char* text) { return ordered_json::parse(text); }

}  // namespace

int probe_save(int argc, char** argv) {
  if (argc != 3) return 2;
  const ordered_json spec = spec_from(argv[2]);
  run_ranks(spec["ranks"], [&](Group& group) {
    SaveOptions options;
    options.group = &group;
    options.use_collectives = spec.value("collectives", true);
    options.write.files_per_rank = spec.value("files", 0);
    options.write.checksums = spec.value("checksums", true);
    if (spec.value("zstd", false)) options.write.transforms = {"zstd"};
    if (spec.value("low_space", "") == "ignore") options.write.low_space = OnLowSpace::kIgnore;
    save(state_of(spec, group.rank(), true), argv[1], options);
  });
  return 0;
}

int probe_load(int argc, char** argv) {
  if (argc != 3) return 2;
  const ordered_json spec = spec_from(argv[2]);
  std::mutex mutex;
  ReadReport sum;
  run_ranks(spec["ranks"], [&](Group& group) {
    LoadOptions options;
    options.group = &group;
    options.plan.replicas = spec.value("read_once", false) ? ReplicaReads::kReadOnce : ReplicaReads::kReadAll;
    options.read.verify = Verify::kFull;
    StateDict state = state_of(spec, group.rank(), false);
    const LoadResult result = load(state, argv[1], options);
    require_same(state, state_of(spec, group.rank(), true), group.rank());
    const std::lock_guard lock(mutex);
    sum.needed += result.read.needed;
    sum.read += result.read.read;
    sum.verified += result.read.verified;
    sum.unverified += result.read.unverified;
  });
  fmt::print(R"({{"needed": {}, "read": {}, "verified": {}, "unverified": {}}})"
             "\n",
             sum.needed, sum.read, sum.verified, sum.unverified);
  return 0;
}

int probe_load_optimizer(int argc, char** argv) {
  if (argc != 3) return 2;
  const ordered_json spec = spec_from(argv[2]);
  std::vector<ordered_json> found(spec["ranks"].get<std::size_t>());
  run_ranks(spec["ranks"], [&](Group& group) {
    OptimizerOptions options;
    options.load.group = &group;
    for (const auto& [name, cut] : spec["parameters"].items()) options.parameters[name] = layout_from(cut);
    const StateDict state =
        load_sharded_optimizer_state_dict(spec["key"].get<std::string>(), argv[1], options);
    ordered_json& mine = found[static_cast<std::size_t>(group.rank())] = ordered_json::object();
    for (const FlatEntry& entry : flatten(state)) {
      const auto* tensor = entry.value.get_if<ShardedTensor>();
      if (tensor == nullptr) continue;
      for (const LocalShard& shard : tensor->shards) {
        const auto* first = reinterpret_cast<const float*>(shard.data.view().data);
        const std::vector<float> values(first, first + shard.box.sizes.numel());
        const std::vector<std::int64_t> offsets(shard.box.offsets.begin(), shard.box.offsets.end());
        mine[entry.name].push_back({offsets, values});
      }
    }
  });
  for (const ordered_json& rank : found) fmt::print("{}\n", rank.dump());
  return 0;
}
