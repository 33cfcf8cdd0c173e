// Arithmetic on sizes that come from files: every overflow is an Error(kLimit), never a wrapped number.
#pragma once

#include <cstdint>

#include "cairn/error.h"

namespace cairn {

[[noreturn]] inline void overflow() { throw Error(ErrorCode::kLimit, "a size does not fit in 64 bits"); }

template <class T> T checked_add(T a, T b) {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) overflow();
  return sum;
}

template <class T> T checked_mul(T a, T b) {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) overflow();
  return product;
}

// Rounds up to a multiple of a power of two.
inline std::uint64_t align_up(std::uint64_t n, std::uint64_t alignment) {
  return checked_add<std::uint64_t>(n, alignment - 1) & ~(alignment - 1);
}

}  // namespace cairn
