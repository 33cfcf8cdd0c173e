#include <fmt/format.h>

#include <algorithm>

#include "cairn/error.h"
#include "cairn/tensor.h"
#include "tensor/cast.h"
#include "tensor/strided.h"

namespace cairn {
namespace {

constexpr std::int64_t kTileElements = 4096;  // converted at a time when a view is not dense
constexpr std::int64_t kTileSide = 64;        // of a tile in which the two views run across each other
constexpr std::int64_t kDenseRow = 256;       // rows of at least this length convert in place
constexpr std::size_t kWidestItem = 16;       // bytes of a complex128

void check_view(const TensorView& view) {
  if (!view.device.is_cpu()) {
    throw Error(ErrorCode::kUnsupported, "copy works on CPU memory only, but a view is on another device");
  }
  if (view.strides.rank() != view.shape.rank()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("shape {} and strides {} differ in rank",
                                                         to_string(view.shape), to_string(view.strides)));
  }
  if (view.data == nullptr && view.numel() != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a view of shape {} has no memory", to_string(view.shape)));
  }
}

void check_pair(const TensorView& from, const TensorView& to) {
  if (from.shape != to.shape) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a tensor of shape {} cannot be copied to shape {}",
                                                         to_string(from.shape), to_string(to.shape)));
  }
  if (!is_convertible(from.dtype, to.dtype)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} cannot be converted to {}", name_of(from.dtype), name_of(to.dtype)));
  }
  check_view(from);
  check_view(to);
}

// How far a tile reaches in each loop. It is wide along the destination's densest loop and along the
// source's, so that both are read and written in whole cache lines, then takes what fits of the others.
std::vector<std::int64_t> tile_of(const std::vector<Loop>& loops) {
  std::vector<std::int64_t> extent(loops.size(), 1);
  const auto densest = std::min_element(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) {
    return std::abs(a.from_stride) < std::abs(b.from_stride);
  });
  const auto across = static_cast<std::size_t>(densest - loops.begin());
  std::int64_t room = kTileElements;
  const auto widen = [&](std::size_t i, std::int64_t limit) {
    extent[i] = std::min(loops[i].size, std::min(limit, room));
    room /= extent[i];
  };
  const std::size_t last = loops.size() - 1;
  widen(last, across == last ? kTileElements : kTileSide);
  if (across != last) widen(across, kTileElements);
  for (std::size_t i = loops.size(); i-- > 0;) {
    if (i != last && i != across) widen(i, kTileElements);
  }
  return extent;
}

// Copies a tile into dense memory, converts it there, and copies the result to its place.
class TileConverter {
 public:
  TileConverter(DType from_type, DType to_type) : from_type_(from_type), to_type_(to_type) {}

  void run(const std::byte* from, std::byte* to, const std::vector<Loop>& loops) {
    std::int64_t count = 1;
    LoopNest gather{from, from_buffer_, loops};
    LoopNest scatter{to_buffer_, to, loops};
    for (std::size_t i = loops.size(); i-- > 0;) {
      gather.loops[i].to_stride = count * static_cast<std::int64_t>(item_size(from_type_));
      scatter.loops[i] = {loops[i].size, count * static_cast<std::int64_t>(item_size(to_type_)),
                          loops[i].to_stride};
      count *= loops[i].size;
    }
    copy_strided(std::move(gather), item_size(from_type_));
    convert(from_buffer_, from_type_, to_buffer_, to_type_, static_cast<std::size_t>(count));
    copy_strided(std::move(scatter), item_size(to_type_));
  }

 private:
  DType from_type_;
  DType to_type_;
  alignas(64) std::byte from_buffer_[kTileElements * kWidestItem];
  alignas(64) std::byte to_buffer_[kTileElements * kWidestItem];
};

// Runs the converter over every tile; those at the edges are smaller.
void convert_tiles(const LoopNest& nest, DType from_type, DType to_type) {
  const std::vector<std::int64_t> extent = tile_of(nest.loops);
  const std::size_t rank = nest.loops.size();
  const auto converter = std::make_unique<TileConverter>(from_type, to_type);
  std::vector<std::int64_t> start(rank, 0);
  std::vector<Loop> tile = nest.loops;
  for (;;) {
    const std::byte* from = nest.from;
    std::byte* to = nest.to;
    for (std::size_t i = 0; i < rank; ++i) {
      from += start[i] * nest.loops[i].from_stride;
      to += start[i] * nest.loops[i].to_stride;
      tile[i].size = std::min(extent[i], nest.loops[i].size - start[i]);
    }
    converter->run(from, to, tile);
    std::size_t i = rank;
    while (i > 0 && (start[i - 1] += extent[i - 1]) >= nest.loops[i - 1].size) start[--i] = 0;
    if (i == 0) return;
  }
}

void convert_strided(const LoopNest& nest, DType from_type, DType to_type) {
  std::size_t outer = nest.loops.size();
  std::int64_t row = 1;
  if (outer > 0) {
    const Loop& inner = nest.loops.back();
    const bool dense = inner.from_stride == static_cast<std::int64_t>(item_size(from_type)) &&
                       inner.to_stride == static_cast<std::int64_t>(item_size(to_type));
    if (!dense || (outer > 1 && inner.size < kDenseRow)) return convert_tiles(nest, from_type, to_type);
    row = inner.size;
    --outer;
  }
  for_each(nest.loops, outer, nest.from, nest.to, [&](const std::byte* from, std::byte* to) {
    convert(from, from_type, to, to_type, static_cast<std::size_t>(row));
  });
}

}  // namespace

void copy(const TensorView& from, const TensorView& to) {
  check_pair(from, to);
  if (to.numel() == 0) return;
  LoopNest nest = LoopNest::over(from, to);
  if (is_bit_copy(from.dtype, to.dtype)) {
    copy_strided(std::move(nest), item_size(to.dtype));
  } else {
    convert_strided(nest, from.dtype, to.dtype);
  }
}

}  // namespace cairn
