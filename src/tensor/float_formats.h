// Bit patterns of the small floating-point formats, to and from float32. Rounding is to nearest, ties
// to even. Everything is a choice between computed values, not a jump, so that loops over it vectorise.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace cairn {

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<std::uint16_t>(is_nan ? 0x7fc0 : rounded);
}

inline float float16_to_float(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fff;
  const std::uint32_t shifted = magnitude << 13;
  const std::uint32_t normal = shifted + (112U << 23);  // 112: the difference of the exponents' biases
  const std::uint32_t special = shifted + (224U << 23);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  std::uint32_t bits = magnitude < 0x0400 ? subnormal : normal;
  bits = magnitude >= 0x7c00 ? special : bits;
  return std::bit_cast<float>(bits | (static_cast<std::uint32_t>(half & 0x8000) << 16));
}

// The float next to `value` whose last bit is 1, unless `value` is a float itself. Rounding that to a
// format of at most 21 bits gives what rounding `value` directly gives.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || value != value || (bits & 1) != 0) return nearest;
  const bool too_large = (static_cast<double>(nearest) > value) == (value > 0);
  return std::bit_cast<float>(too_large ? bits - 1 : bits + 1);
}

// A format with a sign, an exponent and `mantissa` bits below it, in at most 16 bits.
struct FloatFormat {
  int mantissa;
  int bias;
  std::uint32_t largest;   // code of the largest finite number
  std::uint32_t overflow;  // code of what is larger: infinity, the NaN, or `largest` itself
  std::uint32_t nan;
  std::uint32_t sign;      // the sign bit
  bool has_negative_zero;  // if not, that code is the NaN, which then has no sign
};

inline constexpr FloatFormat kFloat16{10, 15, 0x7bff, 0x7c00, 0x7e00, 0x8000, true};
inline constexpr FloatFormat kFloat8E4M3FN{3, 7, 0x7e, 0x7e, 0x7f, 0x80, true};
inline constexpr FloatFormat kFloat8E4M3FNUZ{3, 8, 0x7f, 0x80, 0x80, 0x80, false};
inline constexpr FloatFormat kFloat8E5M2{2, 15, 0x7b, 0x7c, 0x7f, 0x80, true};
inline constexpr FloatFormat kFloat8E5M2FNUZ{2, 16, 0x7f, 0x80, 0x80, 0x80, false};

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

template <FloatFormat F> std::uint32_t encode_float(float value) {
  constexpr int kShift = 23 - F.mantissa;
  constexpr std::uint32_t kHalfUlp = 1U << (kShift - 1);
  constexpr std::uint32_t kBiasDifference = static_cast<std::uint32_t>(127 - F.bias) << 23;
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - F.bias) << 23;
  // Adding this to a subnormal leaves its rounded mantissa in the low bits of the sum.
  constexpr float kRounder = power_of_two(24 - F.bias - F.mantissa);

  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kRounder) -
                                  std::bit_cast<std::uint32_t>(kRounder);
  const std::uint32_t normal =
      (magnitude + (kHalfUlp - 1) + ((magnitude >> kShift) & 1) - kBiasDifference) >> kShift;
  std::uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  code = code > F.largest ? F.overflow : code;
  code = magnitude > 0x7f800000 ? F.nan : code;
  const std::uint32_t sign = (bits >> 31) != 0 ? F.sign : 0;
  if constexpr (F.has_negative_zero) return code | sign;
  return (code == 0 || code == F.nan) ? code : code | sign;
}

template <FloatFormat F> constexpr float decode_float8(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7f;
  const bool negative = (code & 0x80) != 0;
  const bool no_number = F.has_negative_zero ? magnitude > F.largest : code == F.nan;
  const bool infinite = F.has_negative_zero && magnitude == F.overflow && magnitude > F.largest;
  float value = 0;
  if (infinite) {
    value = std::numeric_limits<float>::infinity();
  } else if (no_number) {
    return std::numeric_limits<float>::quiet_NaN();
  } else if ((magnitude >> F.mantissa) == 0) {
    value = static_cast<float>(magnitude) * power_of_two(1 - F.bias - F.mantissa);
  } else {
    const std::uint32_t bias_difference = static_cast<std::uint32_t>(127 - F.bias) << 23;
    value = std::bit_cast<float>((magnitude << (23 - F.mantissa)) + bias_difference);
  }
  return negative ? -value : value;
}

template <FloatFormat F> constexpr std::array<float, 256> decode_table() {
  std::array<float, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) table[code] = decode_float8<F>(code);
  return table;
}

template <FloatFormat F> inline constexpr std::array<float, 256> kDecodeTable = decode_table<F>();

// E8M0 is an exponent alone: 2^(code - 127), and 255 is its NaN. It knows no sign and no zero.
inline float float8_e8m0_to_float(std::uint8_t code) {
  const std::uint32_t bits = code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23;
  return std::bit_cast<float>(code == 0xff ? 0x7fc00000U : bits);
}

// The sign is dropped. A normal number halfway between two powers rounds up; below 2^-126 the tie,
// 2^-127 itself, is code 0, and so is everything smaller.
inline std::uint8_t float_to_float8_e8m0(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) & 0xff;
  const std::uint32_t fraction = bits & 0x7fffff;
  const std::uint32_t tie_rounds_up = exponent > 0 ? 1 : 0;
  const std::uint32_t carry = fraction + tie_rounds_up > 0x400000 ? 1 : 0;
  return static_cast<std::uint8_t>(exponent == 0xff ? 0xff : exponent + carry);
}

}  // namespace cairn
