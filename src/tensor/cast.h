// Conversion of element types in dense memory.
#pragma once

#include <cstddef>

#include "cairn/tensor.h"

namespace cairn {

// Whether torch's copy_ converts between these two; equal types always.
bool is_convertible(DType from, DType to);

// Whether the conversion leaves every byte as it is.
bool is_bit_copy(DType from, DType to);

// Converts `count` elements as copy() does. The memory is dense, need not be aligned and must not
// overlap. Error(kUnsupported) when the pair is not convertible.
//
// Where C++ and so torch leave the result open, it is: for a float that does not fit an integer, the
// low bits of the number cut to an integer if that fits 64 bits (signed, or unsigned from 2^63 on), and
// 0 otherwise, also for NaN; for a bool byte other than 0 and 1, true.
void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::size_t count);

}  // namespace cairn
