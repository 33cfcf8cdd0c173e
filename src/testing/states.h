// Sharded states for tests of save and load: every element says which tensor it belongs to and where.
#pragma once

#include <cstring>
#include <string>

#include "cairn/layout.h"
#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

inline constexpr std::uint64_t kMiB = 1U << 20;

// A tensor whose element i is a number made from `seed` and i.
inline Tensor numbered(const Shape& shape, int seed) {
  Tensor tensor = Tensor::empty(DType::kInt32, shape);
  auto* elements = reinterpret_cast<std::int32_t*>(tensor.bytes().data());
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    elements[i] = static_cast<std::int32_t>(std::int64_t{seed} * 1000003 + i * 7919);
  return tensor;
}

inline MeshLayout rows_over(int ranks) { return {{ranks}, {Placement::shard(0)}}; }
inline MeshLayout columns_over(int ranks) { return {{ranks}, {Placement::shard(1)}}; }

// Rank `rank`'s part of a tensor, in memory of its own.
inline Value part_of(const Tensor& whole, const MeshLayout& layout, int rank) {
  const Box box = layout.box(whole.view().shape, rank);
  const Tensor mine = Tensor::empty(whole.view().dtype, box.sizes);
  if (!box.empty()) copy(whole.view().narrow(box), mine.view());
  return Value(layout.shard(mine, whole.view().shape, rank));
}

// The states below; `part` makes what a rank has of a tensor that is cut.
template <class Part> StateDict trainer_state_of(int version, const Part& part) {
  StateDict state;
  state.set("model", Dict{{"w", part(numbered({37, 24}, version))},
                          {"b", Value(numbered({24}, version + 1))},
                          {"empty", Value(numbered({0, 3}, version))},
                          {"scalar", Value(numbered({}, version + 2))}});
  state.set("optim", Dict{{"exp_avg", part(numbered({129, 40}, version + 3))}});
  state.set("step", Value(version));
  state.set("notes", Dict{{"name", Value("run")}, {"list", Value(List{Value(1), Value(2.5), Value("x")})}});
  return state;
}

// What a small trainer has: sharded weights, a replicated one, optimizer state, plain objects. `version`
// changes every element. Rank r of `ranks`, cut by rows or by columns.
inline StateDict trainer_state(int rank, int ranks, int version, bool by_columns = false) {
  const MeshLayout layout = by_columns ? columns_over(ranks) : rows_over(ranks);
  return trainer_state_of(version, [&](const Tensor& whole) { return part_of(whole, layout, rank); });
}

// The same with all ranks' parts put together: what a load without a state to fill gives.
inline StateDict whole_trainer_state(int version) {
  return trainer_state_of(version, [](const Tensor& whole) { return Value(whole); });
}

}  // namespace cairn
