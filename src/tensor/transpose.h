// Copies a matrix whose rows lie dense in the source and whose columns lie dense in the destination.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// A source of `rows` x `columns` elements. Row r starts at from + r * from_stride; column c is written
// from to + c * to_stride on. Strides are in bytes; memory need not be aligned.
struct Transposition {
  const std::byte* from;
  std::byte* to;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t from_stride;
  std::int64_t to_stride;
};

// `item_size` is 1, 2, 4, 8 or 16.
void transpose(const Transposition& matrix, std::size_t item_size);

}  // namespace cairn
