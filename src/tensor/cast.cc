#include "tensor/cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/bytes.h"
#include "cairn/error.h"
#include "tensor/float_formats.h"

namespace cairn {
namespace {

// Every pair of real types meets in one of four channels, chosen by the destination: a block of the
// source is decoded into the channel's values, and those are encoded. torch converts to the small floats
// through float32 too, so a float64 or int64 is rounded twice on its way there, exactly as here.
//
//   kFloat   float32, float16, bfloat16 and the 8-bit floats
//   kDouble  float64
//   kInteger integers: 64 bits, of which the destination keeps the low ones
//   kTruth   bool: 64 bits, 0 or 1
enum class Channel { kFloat, kDouble, kInteger, kTruth };

template <Channel C>
using Value = std::conditional_t<C == Channel::kFloat, float,
                                 std::conditional_t<C == Channel::kDouble, double, std::uint64_t>>;

constexpr std::size_t kBlock = 1024;  // elements converted at a time
constexpr std::size_t kWidest = 8;    // bytes of a channel's value, and of a real element

// What each element type is made of: its bits in memory, and the number they stand for.
template <class T> struct Native {
  using Bits = T;
  static T decode(T value) { return value; }
  static T encode(T value) { return value; }
};
struct Bool {
  using Bits = std::uint8_t;
  static std::uint64_t decode(Bits bits) { return bits != 0 ? 1 : 0; }
  static Bits encode(std::uint64_t truth) { return static_cast<Bits>(truth); }
};
struct BFloat16 {
  using Bits = std::uint16_t;
  static float decode(Bits bits) { return bfloat16_to_float(bits); }
  static Bits encode(float value) { return float_to_bfloat16(value); }
};
struct Float16 {
  using Bits = std::uint16_t;
  static float decode(Bits bits) { return float16_to_float(bits); }
  static Bits encode(float value) { return static_cast<Bits>(encode_float<kFloat16>(value)); }
};
template <FloatFormat F> struct Float8 {
  using Bits = std::uint8_t;
  static float decode(Bits bits) { return kDecodeTable<F>[bits]; }
  static Bits encode(float value) { return static_cast<Bits>(encode_float<F>(value)); }
};
struct Float8E8M0 {
  using Bits = std::uint8_t;
  static float decode(Bits bits) { return float8_e8m0_to_float(bits); }
  static Bits encode(float value) { return float_to_float8_e8m0(value); }
};

std::uint64_t truncate(double value) {
  if (value > -0x1p63 && value < 0x1p63) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  if (value >= 0x1p63 && value < 0x1p64) return static_cast<std::uint64_t>(value);
  return value == -0x1p63 ? std::uint64_t{1} << 63 : 0;
}

template <Channel C, class Number> Value<C> to_channel(Number number) {
  if constexpr (C == Channel::kTruth)
    return number != 0 ? 1 : 0;  // NaN is not zero
  else if constexpr (C == Channel::kInteger && std::is_floating_point_v<Number>)
    return truncate(number);
  else
    return static_cast<Value<C>>(number);
}

template <class Type, Channel C>
void decode(const std::byte* __restrict from, std::byte* __restrict values, std::size_t count) {
  using Bits = typename Type::Bits;
  for (std::size_t i = 0; i < count; ++i) {
    store(values + i * sizeof(Value<C>), to_channel<C>(Type::decode(load<Bits>(from + i * sizeof(Bits)))));
  }
}

template <class Type, Channel C>
void encode(const std::byte* __restrict values, std::byte* __restrict to, std::size_t count) {
  using Bits = typename Type::Bits;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = load<Value<C>>(values + i * sizeof(Value<C>));
    if constexpr (C == Channel::kInteger)
      store(to + i * sizeof(Bits), static_cast<Bits>(value));
    else
      store(to + i * sizeof(Bits), Type::encode(value));
  }
}

using CastLoop = void (*)(const std::byte* from, std::byte* to, std::size_t count);

struct RealType {
  DType dtype;
  CastLoop decode[4];  // by channel
  Channel channel;     // the one this type is encoded from
  CastLoop encode;
};

template <class Type, Channel C> constexpr RealType row(DType dtype) {
  return {dtype,
          {decode<Type, Channel::kFloat>, decode<Type, Channel::kDouble>, decode<Type, Channel::kInteger>,
           decode<Type, Channel::kTruth>},
          C,
          encode<Type, C>};
}

constexpr RealType kRealTypes[] = {
    row<Bool, Channel::kTruth>(DType::kBool),
    row<Native<std::uint8_t>, Channel::kInteger>(DType::kUInt8),
    row<Native<std::int8_t>, Channel::kInteger>(DType::kInt8),
    row<Native<std::uint16_t>, Channel::kInteger>(DType::kUInt16),
    row<Native<std::int16_t>, Channel::kInteger>(DType::kInt16),
    row<Native<std::uint32_t>, Channel::kInteger>(DType::kUInt32),
    row<Native<std::int32_t>, Channel::kInteger>(DType::kInt32),
    row<Native<std::uint64_t>, Channel::kInteger>(DType::kUInt64),
    row<Native<std::int64_t>, Channel::kInteger>(DType::kInt64),
    row<Float16, Channel::kFloat>(DType::kFloat16),
    row<BFloat16, Channel::kFloat>(DType::kBFloat16),
    row<Native<float>, Channel::kFloat>(DType::kFloat32),
    row<Native<double>, Channel::kDouble>(DType::kFloat64),
    row<Float8<kFloat8E4M3FN>, Channel::kFloat>(DType::kFloat8E4M3FN),
    row<Float8<kFloat8E4M3FNUZ>, Channel::kFloat>(DType::kFloat8E4M3FNUZ),
    row<Float8<kFloat8E5M2>, Channel::kFloat>(DType::kFloat8E5M2),
    row<Float8<kFloat8E5M2FNUZ>, Channel::kFloat>(DType::kFloat8E5M2FNUZ),
    row<Float8E8M0, Channel::kFloat>(DType::kFloat8E8M0FNU),
};

const RealType& real_type(DType dtype) {
  const auto* found = std::find_if(std::begin(kRealTypes), std::end(kRealTypes),
                                   [&](const RealType& type) { return type.dtype == dtype; });
  if (found == std::end(kRealTypes)) {
    throw Error(ErrorCode::kInternal, fmt::format("no conversion loops for {}", name_of(dtype)));
  }
  return *found;
}

// The type whose values are the channel's own: no loop is needed on its side.
bool is_channel_type(DType dtype, Channel channel) {
  return (channel == Channel::kFloat && dtype == DType::kFloat32) ||
         (channel == Channel::kDouble && dtype == DType::kFloat64);
}

void convert_real(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::size_t count) {
  const Channel channel = real_type(to_type).channel;
  const CastLoop decode_loop = real_type(from_type).decode[static_cast<int>(channel)];
  const CastLoop encode_loop = real_type(to_type).encode;
  if (is_channel_type(from_type, channel)) return encode_loop(from, to, count);
  if (is_channel_type(to_type, channel)) return decode_loop(from, to, count);
  alignas(64) std::byte values[kBlock * kWidest];
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t n = std::min(kBlock, count - done);
    decode_loop(from + done * item_size(from_type), values, n);
    encode_loop(values, to + done * item_size(to_type), n);
  }
}

// A torch built for aarch64 rounds float64 to float16 once, in hardware, when both are real numbers; on
// x86-64, and for the parts of complex numbers, it goes through float32 as for every other small float.
#ifdef __aarch64__
constexpr bool kHalfIsRoundedOnce = true;
#else
constexpr bool kHalfIsRoundedOnce = false;
#endif

void convert_number(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::size_t count) {
  if (!kHalfIsRoundedOnce || from_type != DType::kFloat64 || to_type != DType::kFloat16) {
    return convert_real(from, from_type, to, to_type, count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float value = round_to_odd(load<double>(from + i * sizeof(double)));
    store(to + i * sizeof(Float16::Bits), Float16::encode(value));
  }
}

bool is_complex(DType dtype) {
  return dtype == DType::kComplex32 || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

// The type of a complex number's two parts.
DType part_of(DType dtype) {
  switch (dtype) {
    case DType::kComplex32: return DType::kFloat16;
    case DType::kComplex64: return DType::kFloat32;
    case DType::kComplex128: return DType::kFloat64;
    default: return dtype;
  }
}

// Calls visit(first element, element count) for each block of [0, count).
template <class Visit> void for_each_block(std::size_t count, Visit visit) {
  for (std::size_t done = 0; done < count; done += kBlock) visit(done, std::min(kBlock, count - done));
}

void complex_to_bool(const std::byte* from, DType from_type, std::byte* to, std::size_t count) {
  std::byte truths[2 * kBlock];
  for_each_block(count, [&](std::size_t first, std::size_t n) {
    convert_real(from + first * item_size(from_type), part_of(from_type), truths, DType::kBool, 2 * n);
    for (std::size_t i = 0; i < n; ++i) to[first + i] = truths[2 * i] | truths[2 * i + 1];
  });
}

void complex_to_real(const std::byte* from, DType from_type, std::byte* to, DType to_type,
                     std::size_t count) {
  const std::size_t part = item_size(part_of(from_type));
  std::byte reals[kBlock * kWidest];
  for_each_block(count, [&](std::size_t first, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) std::memcpy(reals + i * part, from + (first + i) * 2 * part, part);
    convert_number(reals, part_of(from_type), to + first * item_size(to_type), to_type, n);
  });
}

void real_to_complex(const std::byte* from, DType from_type, std::byte* to, DType to_type,
                     std::size_t count) {
  const std::size_t part = item_size(part_of(to_type));
  std::byte reals[kBlock * kWidest];
  for_each_block(count, [&](std::size_t first, std::size_t n) {
    convert_real(from + first * item_size(from_type), from_type, reals, part_of(to_type), n);
    std::byte* out = to + first * 2 * part;
    std::memset(out, 0, n * 2 * part);
    for (std::size_t i = 0; i < n; ++i) std::memcpy(out + i * 2 * part, reals + i * part, part);
  });
}

bool is_integer(DType dtype) { return dtype >= DType::kUInt8 && dtype <= DType::kInt64; }

}  // namespace

bool is_convertible(DType from, DType to) {
  return from == to || (from != DType::kFloat4E2M1FNx2 && to != DType::kFloat4E2M1FNx2);
}

bool is_bit_copy(DType from, DType to) {
  return from == to || (is_integer(from) && is_integer(to) && item_size(from) == item_size(to));
}

void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::size_t count) {
  if (!is_convertible(from_type, to_type)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} cannot be converted to {}", name_of(from_type), name_of(to_type)));
  }
  if (count == 0) return;
  if (is_bit_copy(from_type, to_type)) {
    std::memcpy(to, from, count * item_size(from_type));
  } else if (is_complex(from_type) && is_complex(to_type)) {
    convert_real(from, part_of(from_type), to, part_of(to_type), 2 * count);
  } else if (is_complex(from_type) && to_type == DType::kBool) {
    complex_to_bool(from, from_type, to, count);
  } else if (is_complex(from_type)) {
    complex_to_real(from, from_type, to, to_type, count);
  } else if (is_complex(to_type)) {
    real_to_complex(from, from_type, to, to_type, count);
  } else {
    convert_number(from, from_type, to, to_type, count);
  }
}

}  // namespace cairn
