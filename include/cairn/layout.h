// How trainers cut a tensor over ranks: a mesh of ranks and, for each of its dimensions, a placement.
//
//   // FSDP over TP on 8 ranks: rows are cut over 2 TP ranks, and each part again over 4 DP ranks.
//   const MeshLayout layout{{4, 2}, {Placement::strided_shard(0, 2), Placement::shard(0)}};
//   Box mine = layout.box({1000, 512}, rank);
//
// The words and the arithmetic are DTensor's: mesh dimensions apply from left to right, parts are as large
// as torch.chunk makes them, so the last ones may be smaller or empty. All types are values; the functions
// may be called by many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

// What one dimension of the mesh does to a tensor.
struct Placement {
  enum class Kind : std::uint8_t { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  std::size_t dim = 0;            // the tensor's dimension that is cut
  std::int64_t split_factor = 1;  // kStridedShard: into how many parts later mesh dimensions cut it first

  static Placement replicate() { return {}; }
  static Placement shard(std::size_t dim) { return {Kind::kShard, dim, 1}; }
  // Cut as if a later mesh dimension with `split_factor` ranks had cut first: FSDP over TP.
  static Placement strided_shard(std::size_t dim, std::int64_t split_factor) {
    return {Kind::kStridedShard, dim, split_factor};
  }
  bool operator==(const Placement&) const = default;
};

// Ranks in a grid, numbered row by row: the last dimension varies fastest.
struct Mesh {
  Shape shape;

  Mesh(std::initializer_list<std::int64_t> sizes) : shape(sizes) {}
  explicit Mesh(Shape sizes) : shape(std::move(sizes)) {}

  std::int64_t size() const { return shape.numel(); }
  Shape coordinate(std::int64_t rank) const;  // Error(kInvalidArgument) for a rank outside
  bool operator==(const Mesh&) const = default;
};

// A part of the global tensor, and where it lies in the rank's own tensor.
struct LocalPart {
  Box box;
  Shape local_offsets;
  bool operator==(const LocalPart&) const = default;
};

// A mesh and one placement for each of its dimensions. Functions that take a global shape throw
// Error(kInvalidArgument) when a placement does not fit it or the mesh.
struct MeshLayout {
  Mesh mesh;
  std::vector<Placement> placements;

  // Size and first element of the rank's part, as compute_local_shape_and_global_offset gives them. An
  // empty part starts at the global size of the dimension that ran out. The part fills this box unless
  // a strided shard cut it into pieces: then only parts() tells where they lie.
  Box box(const Shape& global, std::int64_t rank) const;

  // The same as boxes that the part does fill, in row-major order; one, also when it is empty, unless a
  // strided shard cut it. Error(kLimit) for more than a million.
  std::vector<LocalPart> parts(const Shape& global, std::int64_t rank) const;

  // The rank's own tensor (shape: box().sizes) as shards that a planner understands; it shares its memory.
  ShardedTensor shard(const Tensor& local, const Shape& global, std::int64_t rank) const;

  bool operator==(const MeshLayout&) const = default;
};

}  // namespace cairn
