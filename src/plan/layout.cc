#include "cairn/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::size_t kMostParts = std::size_t{1} << 20;

// A stretch of one dimension.
struct Run {
  std::int64_t begin;
  std::int64_t end;
};

// The indices of one dimension that a rank has, in ascending order.
class Indices {
 public:
  explicit Indices(std::int64_t size) : whole_(size), size_(size), runs_{{0, size}} {}

  std::int64_t size() const { return size_; }
  // The first index; the global size when there is none.
  std::int64_t first() const { return size_ == 0 ? whole_ : runs_.front().begin; }
  std::vector<Run> runs() const { return size_ == 0 ? std::vector<Run>{{whole_, whole_}} : runs_; }

  // Keeps part number `which` of `count`.
  void shard(std::int64_t count, std::int64_t which) {
    const Run part = part_of(size_, count, which);
    keep({part});
  }

  // Cuts into `factor` parts first, and keeps part number `which` of `count` of each.
  void strided_shard(std::int64_t factor, std::int64_t count, std::int64_t which) {
    const std::int64_t step = part_of(size_, factor, 0).end;
    std::vector<Run> kept;
    for (std::int64_t begin = 0; begin < size_; begin += step) {
      const std::int64_t length = std::min(step, size_ - begin);
      const Run part = part_of(length, count, which);
      kept.push_back({begin + part.begin, begin + part.end});
      if (kept.size() > kMostParts) throw Error(ErrorCode::kLimit, "a layout of more than a million parts");
      if (length < step || begin > size_ - step) break;
    }
    keep(kept);
  }

 private:
  // As torch.chunk: all parts of one size but the last ones, which may be smaller or empty.
  static Run part_of(std::int64_t size, std::int64_t count, std::int64_t which) {
    const std::int64_t full = size / count + (size % count != 0 ? 1 : 0);
    std::int64_t begin;
    if (__builtin_mul_overflow(full, which, &begin) || begin > size) begin = size;
    return {begin, begin + std::min(full, size - begin)};
  }

  // Keeps what lies at these positions of the list of indices; positions ascend.
  void keep(const std::vector<Run>& positions) {
    std::vector<Run> kept;
    std::size_t at = 0;       // the run we are in
    std::int64_t before = 0;  // positions before that run
    std::int64_t count = 0;
    for (Run wanted : positions) {
      while (wanted.begin < wanted.end) {
        while (wanted.begin - before >= runs_[at].end - runs_[at].begin) {
          before += runs_[at].end - runs_[at].begin;
          ++at;
        }
        const std::int64_t begin = runs_[at].begin + (wanted.begin - before);
        const std::int64_t length = std::min(runs_[at].end - begin, wanted.end - wanted.begin);
        if (!kept.empty() && kept.back().end == begin) {
          kept.back().end += length;
        } else {
          kept.push_back({begin, begin + length});
        }
        wanted.begin += length;
        count += length;
      }
    }
    if (kept.size() > kMostParts) throw Error(ErrorCode::kLimit, "a layout of more than a million parts");
    runs_ = std::move(kept);
    size_ = count;
  }

  std::int64_t whole_;
  std::int64_t size_;
  std::vector<Run> runs_;  // none is empty, unless all is
};

void check(const MeshLayout& layout, const Shape& global) {
  (void)global.numel();  // dimensions of 0 or more, and not too large
  if (layout.placements.size() != layout.mesh.shape.rank()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} placements for a mesh with {} dimensions",
                                                         layout.placements.size(), layout.mesh.shape.rank()));
  }
  for (const Placement& placement : layout.placements) {
    if (placement.kind == Placement::Kind::kReplicate) continue;
    if (placement.dim >= global.rank()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot cut dimension {} of a tensor of shape {}",
                                                           placement.dim, to_string(global)));
    }
    if (placement.split_factor < 1) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("split factor {}", placement.split_factor));
    }
  }
}

std::vector<Indices> indices_of(const MeshLayout& layout, const Shape& global, std::int64_t rank) {
  check(layout, global);
  const Shape coordinate = layout.mesh.coordinate(rank);
  std::vector<Indices> indices;
  for (const std::int64_t size : global) indices.emplace_back(size);
  for (std::size_t i = 0; i < layout.placements.size(); ++i) {
    const Placement& placement = layout.placements[i];
    const std::int64_t count = layout.mesh.shape[i];
    switch (placement.kind) {
      case Placement::Kind::kReplicate: break;
      case Placement::Kind::kShard: indices[placement.dim].shard(count, coordinate[i]); break;
      case Placement::Kind::kStridedShard:
        indices[placement.dim].strided_shard(placement.split_factor, count, coordinate[i]);
        break;
    }
  }
  return indices;
}

}  // namespace

Shape Mesh::coordinate(std::int64_t rank) const {
  if (rank < 0 || rank >= size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} is not in a mesh of {}", rank, to_string(shape)));
  }
  Shape at(shape.rank(), 0);
  for (std::size_t i = shape.rank(); i-- > 0; rank /= shape[i]) at[i] = rank % shape[i];
  return at;
}

Box MeshLayout::box(const Shape& global, std::int64_t rank) const {
  const std::vector<Indices> indices = indices_of(*this, global, rank);
  Box box{Shape(global.rank(), 0), Shape(global.rank(), 0)};
  for (std::size_t d = 0; d < global.rank(); ++d) {
    // A dimension of no elements that nobody cuts starts where all others do.
    const bool cut = std::any_of(placements.begin(), placements.end(), [&](const Placement& placement) {
      return placement.kind != Placement::Kind::kReplicate && placement.dim == d;
    });
    box.offsets[d] = cut ? indices[d].first() : 0;
    box.sizes[d] = indices[d].size();
  }
  return box;
}

std::vector<LocalPart> MeshLayout::parts(const Shape& global, std::int64_t rank) const {
  const Box whole = box(global, rank);
  const std::vector<Indices> indices = indices_of(*this, global, rank);
  std::vector<LocalPart> parts{{whole, Shape(global.rank(), 0)}};
  if (whole.empty()) return parts;
  for (std::size_t d = 0; d < global.rank(); ++d) {
    const std::vector<Run> runs = indices[d].runs();
    if (runs.size() * parts.size() > kMostParts) {
      throw Error(ErrorCode::kLimit, "a layout of more than a million parts");
    }
    std::vector<LocalPart> cut;
    for (const LocalPart& part : parts) {
      std::int64_t local = 0;
      for (const Run& run : runs) {
        LocalPart& piece = cut.emplace_back(part);
        piece.box.offsets[d] = run.begin;
        piece.box.sizes[d] = run.end - run.begin;
        piece.local_offsets[d] = local;
        local += run.end - run.begin;
      }
    }
    parts = std::move(cut);
  }
  return parts;
}

ShardedTensor MeshLayout::shard(const Tensor& local, const Shape& global, std::int64_t rank) const {
  const Box whole = box(global, rank);
  if (local.view().shape != whole.sizes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rank {} has a part of shape {}, not {}", rank, to_string(whole.sizes),
                            to_string(local.view().shape)));
  }
  ShardedTensor sharded;
  sharded.dtype = local.view().dtype;
  sharded.global_shape = global;
  for (const LocalPart& part : parts(global, rank)) {
    const TensorView view = local.view().narrow({part.local_offsets, part.box.sizes});
    sharded.shards.push_back({part.box, Tensor(view, local.owner())});
  }
  return sharded;
}

}  // namespace cairn
