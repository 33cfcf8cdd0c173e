#include "tensor/strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "tensor/transpose.h"

namespace cairn {
namespace {

struct StridePair {
  std::uint64_t low, high;
};

template <class T> void copy_row(const std::byte* from, std::byte* to, const Loop& loop) {
  for (std::int64_t i = 0; i < loop.size; ++i) {
    store(to + i * loop.to_stride, load<T>(from + i * loop.from_stride));
  }
}

using RowCopy = void (*)(const std::byte*, std::byte*, const Loop&);

RowCopy row_copy_of(std::size_t item_size) {
  switch (item_size) {
    case 1: return copy_row<std::uint8_t>;
    case 2: return copy_row<std::uint16_t>;
    case 4: return copy_row<std::uint32_t>;
    case 8: return copy_row<std::uint64_t>;
    case 16: return copy_row<StridePair>;
    default: return nullptr;
  }
}

// The loop that walks the source in dense steps, or the innermost one when none does.
std::size_t dense_source_loop(const std::vector<Loop>& loops, std::int64_t item) {
  for (std::size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].from_stride == item) return i;
  }
  return loops.size() - 1;
}

// A matrix for every step of the other loops.
void copy_transposed(LoopNest& nest, std::size_t columns_at, std::size_t item_size) {
  const Loop rows = nest.loops.back();
  const Loop columns = nest.loops[columns_at];
  nest.loops.pop_back();
  nest.loops.erase(nest.loops.begin() + static_cast<std::ptrdiff_t>(columns_at));
  for_each(nest.loops, nest.loops.size(), nest.from, nest.to, [&](const std::byte* from, std::byte* to) {
    transpose({from, to, rows.size, columns.size, rows.from_stride, columns.to_stride}, item_size);
  });
}

}  // namespace

LoopNest LoopNest::over(const TensorView& from, const TensorView& to) {
  LoopNest nest{from.data, to.data, {}};
  const auto from_item = static_cast<std::int64_t>(item_size(from.dtype));
  const auto to_item = static_cast<std::int64_t>(item_size(to.dtype));
  std::vector<Loop>& loops = nest.loops;
  loops.reserve(to.shape.rank());
  for (std::size_t i = 0; i < to.shape.rank(); ++i) {
    if (to.shape[i] == 1) continue;
    Loop loop{to.shape[i], from.strides[i] * from_item, to.strides[i] * to_item};
    if (loop.to_stride < 0) {
      nest.from += (loop.size - 1) * loop.from_stride;
      nest.to += (loop.size - 1) * loop.to_stride;
      loop.from_stride = -loop.from_stride;
      loop.to_stride = -loop.to_stride;
    }
    loops.push_back(loop);
  }
  std::stable_sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) {
    if (a.to_stride != b.to_stride) return a.to_stride > b.to_stride;
    return std::abs(a.from_stride) > std::abs(b.from_stride);
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < loops.size(); ++i) {
    Loop& outer = loops[kept];
    const Loop& inner = loops[i];
    if (outer.from_stride == inner.from_stride * inner.size &&
        outer.to_stride == inner.to_stride * inner.size) {
      outer = {outer.size * inner.size, inner.from_stride, inner.to_stride};
    } else {
      loops[++kept] = inner;
    }
  }
  if (!loops.empty()) loops.resize(kept + 1);
  return nest;
}

void copy_strided(LoopNest nest, std::size_t item_size) {
  auto item = static_cast<std::int64_t>(item_size);
  // A dense innermost loop is a larger element.
  if (!nest.loops.empty() && nest.loops.back().from_stride == item && nest.loops.back().to_stride == item) {
    item *= nest.loops.back().size;
    nest.loops.pop_back();
  }
  const auto run = static_cast<std::size_t>(item);
  const RowCopy row_copy = row_copy_of(run);
  if (nest.loops.empty() || row_copy == nullptr) {
    for_each(nest.loops, nest.loops.size(), nest.from, nest.to,
             [run](const std::byte* from, std::byte* to) { std::memcpy(to, from, run); });
    return;
  }
  const std::size_t last = nest.loops.size() - 1;
  const std::size_t columns_at = dense_source_loop(nest.loops, item);
  if (columns_at != last && nest.loops[last].to_stride == item) return copy_transposed(nest, columns_at, run);
  const Loop inner = nest.loops.back();
  for_each(nest.loops, last, nest.from, nest.to,
           [&](const std::byte* from, std::byte* to) { row_copy(from, to, inner); });
}

}  // namespace cairn
