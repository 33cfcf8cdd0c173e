#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cairn/error.h"
#include "cairn/tensor.h"

namespace cairn {
namespace {

// Where a side ends. Sides from files may reach past 2^63: they end at the last number there is, which
// is past every real tensor.
std::int64_t end_of(std::int64_t offset, std::int64_t size) {
  std::int64_t end;
  if (!__builtin_add_overflow(offset, size, &end)) return end;
  return size < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

void check_rank(const Box& a, const Box& b) {
  const std::size_t rank = a.sizes.rank();
  if (a.offsets.rank() == rank && b.offsets.rank() == rank && b.sizes.rank() == rank) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("boxes {} and {} differ in rank", to_string(a), to_string(b)));
}

}  // namespace

bool Box::empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }

bool Box::contains(const Box& inner) const {
  check_rank(*this, inner);
  for (std::size_t i = 0; i < rank(); ++i) {
    std::int64_t before;
    if (__builtin_sub_overflow(inner.offsets[i], offsets[i], &before)) return false;
    if (before < 0 || inner.sizes[i] < 0 || inner.sizes[i] > sizes[i]) return false;
    if (before > sizes[i] - inner.sizes[i]) return false;
  }
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  check_rank(a, b);
  Box common{Shape(a.rank(), 0), Shape(a.rank(), 0)};
  for (std::size_t i = 0; i < a.rank(); ++i) {
    const std::int64_t begin = std::max(a.offsets[i], b.offsets[i]);
    const std::int64_t end = std::min(end_of(a.offsets[i], a.sizes[i]), end_of(b.offsets[i], b.sizes[i]));
    if (end <= begin) return std::nullopt;
    common.offsets[i] = begin;
    common.sizes[i] = end - begin;
  }
  return common;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  const std::size_t rank = std::min(box.offsets.rank(), box.sizes.rank());
  for (std::size_t i = 0; i < rank; ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", box.offsets[i], end_of(box.offsets[i], box.sizes[i]));
  }
  return text + "]";
}

}  // namespace cairn
