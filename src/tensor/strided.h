// Nested loops over two strided views at once, and the copy that runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/tensor.h"

namespace cairn {

// One loop: strides are in bytes.
struct Loop {
  std::int64_t size;
  std::int64_t from_stride;
  std::int64_t to_stride;
  bool operator==(const Loop&) const = default;
};

// Visits every element of two views of equal shape, outermost loop first, innermost last.
struct LoopNest {
  const std::byte* from;
  std::byte* to;
  std::vector<Loop> loops;

  // The fewest loops that visit the elements, in the order of the destination's memory: dimensions of
  // size 1 vanish, negative strides of the destination are turned round, neighbours are merged. The
  // views have elements.
  static LoopNest over(const TensorView& from, const TensorView& to);
};

// Copies elements of `item_size` bytes.
void copy_strided(LoopNest nest, std::size_t item_size);

// Calls body(from, to) at every step of loops[0, count), the last of them fastest.
template <class Body>
void for_each(const std::vector<Loop>& loops, std::size_t count, const std::byte* from, std::byte* to,
              const Body& body) {
  std::vector<std::int64_t> step(count, 0);
  for (;;) {
    body(from, to);
    std::size_t i = count;
    while (i > 0 && ++step[i - 1] == loops[i - 1].size) {
      --i;
      step[i] = 0;
      from -= (loops[i].size - 1) * loops[i].from_stride;
      to -= (loops[i].size - 1) * loops[i].to_stride;
    }
    if (i == 0) return;
    from += loops[i - 1].from_stride;
    to += loops[i - 1].to_stride;
  }
}

}  // namespace cairn
