#include "plan/merge_paths.h"

#include "base/name_table.h"
#include "base/pod_vector.h"

namespace cairn {
namespace {

// The maps of the plans by rank, neighbours that are equal left out.
std::vector<const PathMap*> different_maps(const std::vector<SavePlan>& plans) {
  std::vector<const PathMap*> maps;
  for (const SavePlan& plan : plans) {
    const PathMap* map = std::get_if<PathMap>(&plan.planner_data);
    if (map != nullptr && (maps.empty() || !(*map == *maps.back()))) maps.push_back(map);
  }
  return maps;
}

void copy_entry(PathMap& to, const PathMap& from, std::size_t i) {
  to.begin_entry(from.fqn(i));
  std::uint64_t cursor = 0;
  while (const auto step = from.step(i, cursor)) {
    if (step->is_number) {
      to.add_step(step->number);
    } else {
      to.add_step(step->name);
    }
  }
}

// Where the path of a name stands.
struct Place {
  std::uint32_t map;
  std::uint32_t entry;
};

}  // namespace

PlannerData merge_paths(const std::vector<SavePlan>& plans) {
  const std::vector<const PathMap*> maps = different_maps(plans);
  if (maps.empty()) return None{};
  if (maps.size() == 1) return *maps.front();
  NameTable names;
  PodVector<Place> places;  // by name: the last one written is the lowest rank's
  for (std::size_t m = maps.size(); m-- > 0;) {
    for (std::size_t i = 0; i < maps[m]->size(); ++i) {
      const std::uint32_t name = names.intern(maps[m]->fqn(i));
      if (name == places.size()) places.push_back({});
      places[name] = {static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(i)};
    }
  }
  PathMap merged;
  for (const Place& place : places) copy_entry(merged, *maps[place.map], place.entry);
  return merged;
}

}  // namespace cairn
