// Steps of planning for planners that are written in Python: dedup, cover, reshard.

#include <utility>
#include <vector>

#include "cairn/plan_steps.h"
#include "metadata.h"

using namespace nb::literals;

namespace cairn::python {
namespace {

std::vector<Box> to_boxes(nb::list rows) {
  std::vector<Box> boxes;
  for (nb::handle row : rows) boxes.push_back({to_shape(row[0]), to_shape(row[1])});
  return boxes;
}

// Which items of each plan stay, by position.
nb::list dedup(nb::list plans, bool lowest_rank) {
  std::vector<SavePlan> all;
  for (nb::handle rows : plans) {
    SavePlan plan;
    plan.items = to_items(nb::cast<nb::list>(rows));
    all.push_back(std::move(plan));
  }
  all = dedup_save_plans(std::move(all), lowest_rank ? DedupRule::kLowestRank : DedupRule::kDcpBalanced);
  nb::list kept;
  for (const SavePlan& plan : all) {
    nb::list positions;
    for (const WriteItem item : plan.items) positions.append(item.index.index.value());
    kept.append(positions);
  }
  return kept;
}

// What is wrong with chunks that ought to tile a tensor: (kind, text), or None.
nb::object cover_problem(nb::handle size, nb::list chunks) {
  const std::vector<Box> boxes = to_boxes(std::move(chunks));
  const auto problem = find_cover_problem(to_shape(size), boxes);
  if (!problem) return nb::none();
  const char* const kinds[] = {"out_of_bounds", "overlap", "hole"};
  return nb::make_tuple(kinds[static_cast<int>(problem->kind)], to_str(problem->text));
}

// (wanted, stored, offsets in the wanted box, offsets in the stored one, lengths) for every part they share.
nb::list reshard(nb::handle size, nb::list stored, nb::list wanted) {
  TensorStorageMetadata tensor;
  tensor.size = to_shape(size);
  tensor.chunks = to_boxes(std::move(stored));
  nb::list rows;
  for (const ReadItem& item : create_read_items_for_chunk_list("", tensor, to_boxes(std::move(wanted)))) {
    rows.append(nb::make_tuple(item.dest_index.index.value(), item.storage_index.index.value(),
                               to_tuple(item.dest_offsets), to_tuple(item.storage_offsets),
                               to_tuple(item.lengths)));
  }
  return rows;
}

}  // namespace

void bind_plan(nb::module_& m) {
  m.def("dedup", dedup, "plans"_a, "lowest_rank"_a);
  m.def("cover_problem", cover_problem, "size"_a, "chunks"_a);
  m.def("reshard", reshard, "size"_a, "stored"_a, "wanted"_a);
}

}  // namespace cairn::python
