// load-plan: one JSON request per line on stdin, one JSON answer per line on stdout, as long as there are
// lines.
//
// A box is [offsets, sizes]; a read item [type, dest, dest offsets, storage, storage offsets, lengths] with
// an index as [fqn, offset, hint]. A checkpoint is [[fqn, null] or [fqn, dtype, size, [box...]]...]; a state
// and an error are as probe_json.h has them. A request names its "op".
#include <string>

#include "cairn/error.h"
#include "cairn/layout.h"
#include "cairn/planner.h"
#include "probe.h"
#include "probe_json.h"

namespace {

using nlohmann::ordered_json;
using namespace cairn;
using cairn::json_of;

ordered_json json_of(const Box& box) { return {json_of(box.offsets), json_of(box.sizes)}; }

ordered_json json_of(const MetadataIndex& index) {
  ordered_json j = {index.fqn, nullptr, nullptr};
  if (index.offset) j[1] = json_of(*index.offset);
  if (index.index) j[2] = *index.index;
  return j;
}

ordered_json json_of(const std::vector<ReadItem>& items) {
  ordered_json j = ordered_json::array();
  for (const ReadItem& item : items) {
    j.push_back({static_cast<int>(item.type), json_of(item.dest_index), json_of(item.dest_offsets),
                 json_of(item.storage_index), json_of(item.storage_offsets), json_of(item.lengths)});
  }
  return j;
}

Metadata metadata_from(const ordered_json& request) {
  Metadata metadata;
  for (const ordered_json& j : request["checkpoint"]) {
    if (j[1].is_null()) {
      metadata.state_dict_metadata.emplace_back(j[0].get<std::string>(), BytesStorageMetadata{});
      continue;
    }
    TensorStorageMetadata tensor;
    tensor.properties.dtype = dtype_from(j[1]);
    tensor.size = shape_from(j[2]);
    tensor.chunks = boxes_from(j[3]);
    metadata.state_dict_metadata.emplace_back(j[0].get<std::string>(), std::move(tensor));
  }
  if (!request.contains("paths") || request["paths"].is_null()) return metadata;
  PathMap paths;
  for (const ordered_json& entry : request["paths"])
    paths.add(entry[0].get<std::string>(), path_from(entry[1]));
  metadata.planner_data = std::move(paths);
  return metadata;
}

// Box and parts of every rank.
ordered_json layouts(const ordered_json& request) {
  MeshLayout layout{Mesh(shape_from(request["mesh"])), {}};
  for (const ordered_json& j : request["placements"]) {
    if (j.is_null()) {
      layout.placements.push_back(Placement::replicate());
    } else if (j.size() == 1) {
      layout.placements.push_back(Placement::shard(j[0].get<std::size_t>()));
    } else {
      layout.placements.push_back(
          Placement::strided_shard(j[0].get<std::size_t>(), j[1].get<std::int64_t>()));
    }
  }
  const Shape global = shape_from(request["shape"]);
  ordered_json ranks = ordered_json::array();
  for (std::int64_t rank = 0; rank < layout.mesh.size(); ++rank) {
    ordered_json parts = ordered_json::array();
    for (const LocalPart& part : layout.parts(global, rank)) {
      parts.push_back({json_of(part.box), json_of(part.local_offsets)});
    }
    ranks.push_back({json_of(layout.box(global, rank)), parts});
  }
  return ranks;
}

ordered_json read_items(const ordered_json& request) {
  TensorStorageMetadata stored;
  stored.chunks = boxes_from(request["stored"]);
  return json_of(create_read_items_for_chunk_list("w", stored, boxes_from(request["wanted"])));
}

LoadPlannerOptions options_from(const ordered_json& request) {
  LoadPlannerOptions options;
  options.flatten_state_dict = request.value("flatten", true);
  options.allow_partial_load = request.value("partial", false);
  options.report.incomplete = OnMismatch::kIgnore;  // as DCP
  return options;
}

// A default planner, from the state to the plan; then every object it asks for arrives as its own name.
ordered_json planned(const ordered_json& request) {
  const Metadata metadata = metadata_from(request);
  StateDict state = value_from(request["state"]).get<Dict>();
  std::optional<std::vector<std::string>> keys;
  if (request.contains("keys") && !request["keys"].is_null())
    keys = request["keys"].get<std::vector<std::string>>();
  std::unique_ptr<LoadPlanner> planner;
  if (request.contains("keys")) {
    planner = std::make_unique<EmptyStateDictLoadPlanner>(keys, options_from(request));
  } else {
    planner = std::make_unique<DefaultLoadPlanner>(options_from(request));
  }
  planner->set_up_planner(state, &metadata, true);
  const LoadPlan plan = planner->create_local_plan();
  for (const ReadItem& item : plan.items) {
    if (item.type == LoadItemType::kByteIO) {
      planner->load_bytes(item, Value("loaded " + item.dest_index.fqn));
    } else if (planner->resolve_tensor(item).shape != item.lengths) {
      throw Error(ErrorCode::kInternal, "resolve_tensor gives another shape");
    }
  }
  return {{"items", json_of(plan.items)}, {"state", to_string(Value(state), 1 << 20)}};
}

ordered_json local_plan(const ordered_json& request) {
  const Metadata metadata = metadata_from(request);
  const Value state = value_from(request["state"]);
  Flattened entries;
  for (const auto& [key, value] : state.get<Dict>()) entries.push_back({to_string(key), {key}, value});
  return json_of(create_default_local_load_plan(entries, metadata, !request.value("partial", false)).items);
}

ordered_json load_plan_of(const ordered_json& request) {
  const std::string op = request["op"];
  if (op == "layout") return layouts(request);
  if (op == "read_items") return read_items(request);
  if (op == "local_plan") return local_plan(request);
  if (op == "planner") return planned(request);
  throw Error(ErrorCode::kInvalidArgument, "no such op: " + op);
}

}  // namespace

int probe_load_plan(int, char**) { return answer_lines(load_plan_of); }
