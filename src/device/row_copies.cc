#include "device/row_copies.h"

#include "base/checked.h"

namespace cairn {
namespace {

// Rows shorter than this cost a device more than the bytes between them, unless those are many.
constexpr std::uint64_t kShortRow = 64;
constexpr std::uint64_t kMostBetween = 16;
constexpr std::uint64_t kManyCopies = 256;  // calls for one piece

bool is_pitch(std::int64_t stride, std::uint64_t row) {
  return stride > 0 && static_cast<std::uint64_t>(stride) >= row &&
         static_cast<std::uint64_t>(stride) <= kMostPitch;
}

bool is_plane(std::int64_t stride, std::uint64_t pitch, std::uint64_t rows) {
  return stride > 0 && static_cast<std::uint64_t>(stride) % pitch == 0 &&
         static_cast<std::uint64_t>(stride) / pitch >= rows;
}

}  // namespace

RowCopies::RowCopies(const TensorView& from, const TensorView& to) {
  LoopNest nest = LoopNest::over(from, to);
  std::vector<Loop>& loops = nest.loops;
  copy_.from = nest.from;
  copy_.to = nest.to;
  copy_.row = item_size(to.dtype);
  const auto item = static_cast<std::int64_t>(copy_.row);
  if (!loops.empty() && loops.back().from_stride == item && loops.back().to_stride == item) {
    copy_.row *= static_cast<std::uint64_t>(loops.back().size);
    loops.pop_back();
  }
  if (!loops.empty() && is_pitch(loops.back().from_stride, copy_.row) &&
      is_pitch(loops.back().to_stride, copy_.row)) {
    copy_.rows = static_cast<std::uint64_t>(loops.back().size);
    copy_.from_pitch = static_cast<std::uint64_t>(loops.back().from_stride);
    copy_.to_pitch = static_cast<std::uint64_t>(loops.back().to_stride);
    loops.pop_back();
    if (!loops.empty() && is_plane(loops.back().from_stride, copy_.from_pitch, copy_.rows) &&
        is_plane(loops.back().to_stride, copy_.to_pitch, copy_.rows)) {
      copy_.planes = static_cast<std::uint64_t>(loops.back().size);
      copy_.from_plane = static_cast<std::uint64_t>(loops.back().from_stride);
      copy_.to_plane = static_cast<std::uint64_t>(loops.back().to_stride);
      loops.pop_back();
    }
  }
  outer_ = std::move(loops);
}

std::uint64_t RowCopies::count() const {
  std::uint64_t count = 1;
  for (const Loop& loop : outer_) count *= static_cast<std::uint64_t>(loop.size);
  return count;
}

ByteExtent extent_of(const TensorView& view) {
  std::int64_t before = 0, behind = 0;
  for (std::size_t i = 0; i < view.shape.rank(); ++i) {
    const std::int64_t reach = checked_mul(view.shape[i] - 1, view.strides[i]);
    (reach < 0 ? before : behind) = checked_add(reach < 0 ? before : behind, reach);
  }
  const auto item = static_cast<std::int64_t>(item_size(view.dtype));
  return {view.data + checked_mul(before, item),
          static_cast<std::uint64_t>(checked_mul(behind - before + 1, item))};
}

bool is_better_gathered(const TensorView& view) {
  const RowCopies rows(view, TensorView::contiguous(view.data, view.dtype, view.shape));
  if (rows.row() == view.bytes()) return false;
  const bool close = extent_of(view).bytes / kMostBetween <= view.bytes();
  return close && (rows.row() < kShortRow || rows.count() > kManyCopies);
}

}  // namespace cairn
