// Numbers that were stored in few bits with scales beside them, made into floats again.
//
// Two schemes, as models on Hugging Face have them. Both give what torch's arithmetic gives, bit for bit. The
// memory is the CPU's; rows are dense, whatever lies between them. May be used by many threads at once.
#pragma once

#include <cstdint>

#include "cairn/tensor.h"

namespace cairn {

// Whether numbers can be dequantised to it: float32, bfloat16, float16.
bool is_dequantized_type(DType dtype);

// Elements of a matrix of which each square of `block` x `block` shares a scale ("weight_scale_inv"):
// element x scale in float32, then rounded to the type of `to`.
//
// `elements` is the part of the matrix that begins at (`row`, `column`), of any real type; `to` has its
// shape. `scales` are those of the whole matrix, float32. Error(kInvalidArgument) when they do not reach that
// far.
void dequantize_blocks(const TensorView& elements, std::int64_t row, std::int64_t column, std::int64_t block,
                       const TensorView& scales, const TensorView& to);

// MXFP4: two 4-bit numbers in a byte, the lower half first, and a byte for each group of bytes that says by
// which power of two (less 127) its numbers are scaled ("_blocks", "_scales").
//
// `codes` are rows of whole groups, (rows, groups x group_bytes); `scales` is (rows, groups); both uint8. A
// row of `to` begins at the number `first` of its row.
void dequantize_mxfp4(const TensorView& codes, const TensorView& scales, std::int64_t first,
                      const TensorView& to);

}  // namespace cairn
