// plan: one JSON request per line on stdin, one JSON answer per line on stdout, as long as there are lines.
//
// An item is [type, fqn, offset, hint, dtype, size, chunk offsets, chunk sizes]; a plan {"items": [...],
// "paths": [[fqn, [step...]]...]} with paths left out where there are none; a state and an error are as
// probe_json.h has them. A request names its "op".
#include <fstream>
#include <string>

#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "cairn/planner.h"
#include "format/dcp_metadata.h"
#include "plan/wire.h"
#include "probe.h"
#include "probe_json.h"

namespace {

using nlohmann::ordered_json;
using namespace cairn;
using cairn::json_of;

WriteItem item_from(const ordered_json& j) {
  WriteItem item;
  item.type = static_cast<WriteItemType>(j[0].get<int>());
  item.index.fqn = j[1].get<std::string>();
  if (!j[2].is_null()) item.index.offset = shape_from(j[2]);
  if (!j[3].is_null()) item.index.index = j[3].get<std::int64_t>();
  if (j[4].is_null()) return item;
  TensorProperties properties;
  properties.dtype = dtype_from(j[4]);
  item.tensor_data = TensorWriteData{{shape_from(j[6]), shape_from(j[7])}, properties, shape_from(j[5])};
  return item;
}

ordered_json json_of(const WriteItem& item) {
  ordered_json j = {
      static_cast<int>(item.type), item.index.fqn, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  if (item.index.offset) j[2] = json_of(*item.index.offset);
  if (item.index.index) j[3] = *item.index.index;
  if (item.tensor_data) {
    j[4] = std::string(name_of(item.tensor_data->properties.dtype));
    j[5] = json_of(item.tensor_data->size);
    j[6] = json_of(item.tensor_data->chunk.offsets);
    j[7] = json_of(item.tensor_data->chunk.sizes);
  }
  return j;
}

SavePlan plan_from(const ordered_json& j) {
  SavePlan plan;
  for (const ordered_json& item : j.at("items")) plan.items.push_back(item_from(item));
  if (!j.contains("paths")) return plan;
  PathMap paths;
  for (const ordered_json& entry : j.at("paths")) {
    paths.add(entry[0].get<std::string>(), path_from(entry[1]));
  }
  plan.planner_data = std::move(paths);
  return plan;
}

ordered_json json_of(const PlannerData& data) {
  const PathMap* paths = std::get_if<PathMap>(&data);
  if (paths == nullptr) return nullptr;
  ordered_json j = ordered_json::array();
  for (std::size_t i = 0; i < paths->size(); ++i) {
    j.push_back({std::string(paths->fqn(i)), json_of(paths->path(i))});
  }
  return j;
}

ordered_json json_of(const SavePlan& plan) {
  ordered_json items = ordered_json::array();
  for (const WriteItem item : plan.items) items.push_back(json_of(item));
  return {{"items", items}, {"paths", json_of(plan.planner_data)}, {"usable", plan.usable}};
}

ordered_json json_of(const std::vector<SavePlan>& plans) {
  ordered_json j = ordered_json::array();
  for (const SavePlan& plan : plans) j.push_back(json_of(plan));
  return j;
}

ordered_json json_of(const Metadata& metadata) {
  ordered_json entries = ordered_json::array();
  for (const auto& [name, stored] : metadata.state_dict_metadata) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
    if (tensor == nullptr) {
      entries.push_back({name, nullptr});
      continue;
    }
    ordered_json chunks = ordered_json::array();
    for (const Box& chunk : tensor->chunks) chunks.push_back({json_of(chunk.offsets), json_of(chunk.sizes)});
    entries.push_back(
        {name, {std::string(name_of(tensor->properties.dtype)), json_of(tensor->size), std::move(chunks)}});
  }
  PlannerData paths;
  if (const auto* map = std::get_if<PathMap>(&metadata.planner_data)) paths = *map;
  return {{"entries", entries}, {"paths", json_of(paths)}};
}

// The plans of a request; sent over the wire and back first when it says so.
std::vector<SavePlan> plans_from(const ordered_json& request) {
  std::vector<SavePlan> plans;
  for (const ordered_json& plan : request.at("plans")) plans.push_back(plan_from(plan));
  if (!request.value("wire", false)) return plans;
  PlanGather gather(static_cast<int>(plans.size()));
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const std::string message =
        encode_local_plan(plans[rank], static_cast<int>(rank), static_cast<int>(plans.size()));
    gather.add(as_bytes(message));
  }
  return gather.take();
}

DedupRule rule_from(const ordered_json& request) {
  const std::string rule = request.value("rule", "balanced");
  if (rule == "dcp") return DedupRule::kDcpBalanced;
  return rule == "lowest" ? DedupRule::kLowestRank : DedupRule::kBalanced;
}

ordered_json local(const ordered_json& request) {
  DefaultSavePlanner planner;
  const Value state = value_from(request.at("state"));
  planner.set_up_planner(state.get<Dict>(), nullptr, false);
  return json_of(planner.create_local_plan());
}

ordered_json json_of(const std::vector<PlanProblem>& problems) {
  static constexpr const char* kKinds[] = {"bounds", "overlap", "hole", "dtype", "size", "extent", "kind"};
  ordered_json j = ordered_json::array();
  for (const PlanProblem& problem : problems) {
    j.push_back({kKinds[static_cast<std::size_t>(problem.kind)], problem.fqn,
                 problem.rank ? ordered_json(*problem.rank) : ordered_json(nullptr)});
  }
  return j;
}

ordered_json json_of(const GlobalSavePlan& global) {
  return {{"plans", json_of(global.plans)}, {"metadata", json_of(*global.metadata)}};
}

ordered_json save_plan_of(const ordered_json& request) {
  const std::string op = request.at("op");
  if (op == "local") return local(request);
  if (op == "dedup") return json_of(dedup_save_plans(plans_from(request), rule_from(request)));
  if (op == "global") return json_of(create_default_global_save_plan(plans_from(request)));
  if (op == "validate") {
    const GlobalSavePlan global = create_default_global_save_plan(plans_from(request));
    return {{"problems",
             json_of(validate_global_plan(global.plans, *global.metadata, request.value("partial", false)))}};
  }
  if (op == "conflicts") return {{"problems", json_of(find_conflicts(plans_from(request)))}};
  if (op == "plan") {  // the whole global step
    SavePlannerOptions options;
    options.global.dedup = rule_from(request);
    options.global.split.enabled = request.contains("split");
    if (options.global.split.enabled) options.global.split.max_item_bytes = request.at("split");
    options.global.split.over_replicas = request.value("over_replicas", true);
    const GlobalSavePlan global = DefaultSavePlanner(options).create_global_plan(plans_from(request));
    if (request.contains("metadata_file")) {
      StringSink sink;
      write_dcp_metadata(sink, *global.metadata);
      std::ofstream(request.at("metadata_file").get<std::string>(), std::ios::binary) << sink.text;
    }
    return json_of(global);
  }
  throw Error(ErrorCode::kInvalidArgument, "no such op: " + op);
}

}  // namespace

int probe_plan(int, char**) { return answer_lines(save_plan_of); }
