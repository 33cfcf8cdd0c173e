// Small states of many shapes: every element says which version it belongs to, and where.
#pragma once

#include <string>
#include <vector>

#include "cairn/cairn.h"
#include "random.h"
#include "testing/states.h"

namespace cairn::sim {

// What a job saves.
struct Shapes {
  enum class Cut { kRows, kColumns, kReplicated };
  struct OneTensor {
    std::string name;
    Shape shape;
    Cut cut = Cut::kRows;
  };
  std::vector<OneTensor> tensors;
  bool has_note = false;
};

inline Shapes draw_shapes(Random& random) {
  Shapes shapes;
  const int count = random.between(1, 3);
  for (int i = 0; i < count; ++i) {
    Shapes::OneTensor one;
    one.name = "t" + std::to_string(i);
    one.cut = static_cast<Shapes::Cut>(random.below(3));
    // Fewer rows than ranks is the usual case here: some have nothing to write.
    one.shape = Shape({random.between(random.chance(5) ? 0 : 1, 12), random.between(1, 6)});
    shapes.tensors.push_back(std::move(one));
  }
  shapes.has_note = random.chance(50);
  return shapes;
}

inline int seed_of(int version, std::size_t tensor) { return version * 16 + static_cast<int>(tensor); }

// How one rank differs from the others: in what it has, in what it is, or in what it says it has written.
enum class Odd { kNot, kDType, kShape, kMissing, kTwice, kWorldSize, kVersion, kForgets };

// Whether the ranks find out when they plan, before anybody writes.
inline bool is_found_by_planning(Odd odd) { return odd != Odd::kNot && odd != Odd::kForgets; }

inline Value odd_part(const Shapes::OneTensor& one, const Tensor& whole, int ranks, int rank, Odd odd) {
  const MeshLayout layout = one.cut == Shapes::Cut::kRows ? rows_over(ranks) : columns_over(ranks);
  if (odd == Odd::kDType) {
    const Tensor other = Tensor::zeros(DType::kFloat64, whole.view().shape);
    return one.cut == Shapes::Cut::kReplicated ? Value(other) : part_of(other, layout, rank);
  }
  if (odd == Odd::kShape) {
    Shape shape = whole.view().shape;
    shape[0] += 1;
    const Tensor other = Tensor::zeros(DType::kInt32, shape);
    return one.cut == Shapes::Cut::kReplicated ? Value(other) : part_of(other, layout, rank);
  }
  if (odd == Odd::kTwice) return part_of(whole, layout, (rank + 1) % ranks);
  return part_of(whole, layout, rank);
}

// The tensors of one version, uncut: made once for all ranks.
inline std::vector<Tensor> whole_tensors(const Shapes& shapes, int version) {
  std::vector<Tensor> whole;
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i)
    whole.push_back(numbered(shapes.tensors[i].shape, seed_of(version, i)));
  return whole;
}

inline StateDict state_of(const Shapes& shapes, const std::vector<Tensor>& whole, int version, int rank,
                          int ranks, Odd odd = Odd::kNot) {
  StateDict state;
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const Shapes::OneTensor& one = shapes.tensors[i];
    if (is_found_by_planning(odd) && i == 0) {
      if (odd != Odd::kMissing) state.set(one.name, odd_part(one, whole[i], ranks, rank, odd));
    } else if (one.cut == Shapes::Cut::kReplicated) {
      state.set(one.name, Value(whole[i]));
    } else {
      state.set(
          one.name,
          part_of(whole[i], one.cut == Shapes::Cut::kRows ? rows_over(ranks) : columns_over(ranks), rank));
    }
  }
  state.set("step", Value(version));
  if (shapes.has_note) state.set("note", Value("run"));
  return state;
}

// Throws std::runtime_error when `state` is not all of that version, and nothing else.
inline void require_version(const StateDict& state, const Shapes& shapes, int version) {
  const auto fail = [&](const std::string& what) {
    throw std::runtime_error("'" + what + "' is not that of version " + std::to_string(version));
  };
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const Shapes::OneTensor& one = shapes.tensors[i];
    const Value* found = state.find(one.name);
    if (found == nullptr || !(*found == Value(numbered(one.shape, seed_of(version, i))))) fail(one.name);
  }
  const Value* step = state.find("step");
  if (step == nullptr || !(*step == Value(version))) fail("step");
  if (state.size() != shapes.tensors.size() + (shapes.has_note ? 2 : 1)) fail("all of it");
}

}  // namespace cairn::sim
