#include "tensor/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

#include "cairn/error.h"
#include "tensor/float_formats.h"

// Every pair of types is compared with torch in tests/interop; here are the rules, by example.
namespace cairn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class To, class From>
std::vector<To> converted(DType from_type, DType to_type, const std::vector<From>& from) {
  std::vector<To> to(from.size());
  convert(reinterpret_cast<const std::byte*>(from.data()), from_type, reinterpret_cast<std::byte*>(to.data()),
          to_type, from.size());
  return to;
}

template <class To, class From> To one(DType from_type, DType to_type, From value) {
  return converted<To, From>(from_type, to_type, {value})[0];
}

TEST(Cast, Float32ToBFloat16RoundsToEven) {
  const auto to = [](float x) { return one<std::uint16_t>(DType::kFloat32, DType::kBFloat16, x); };
  EXPECT_EQ(to(1.0F), 0x3f80);
  EXPECT_EQ(to(1.0F + 0x1p-8F), 0x3f80);      // tie, to even
  EXPECT_EQ(to(1.0F + 3 * 0x1p-8F), 0x3f82);  // tie, to even
  EXPECT_EQ(to(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);
  EXPECT_EQ(to(-0.0F), 0x8000);
  EXPECT_EQ(to(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(to(static_cast<float>(kNaN)) & 0x7fff, 0x7fc0);
}

// Every half is a float; converting it back gives the same bits.
TEST(Cast, EveryFloat16AndBFloat16ComesBackFromFloat32) {
  std::vector<std::uint16_t> every(65536);
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const auto floats = converted<float>(dtype, DType::kFloat32, every);
    const auto back = converted<std::uint16_t>(DType::kFloat32, dtype, floats);
    for (std::size_t i = 0; i < every.size(); ++i) {
      if (!std::isnan(floats[i])) {
        ASSERT_EQ(back[i], every[i]) << name_of(dtype);
      }
    }
  }
}

TEST(Cast, EveryFloat8ComesBackFromFloat32) {
  std::vector<std::uint8_t> every(256);
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint8_t>(i);
  for (const DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2,
                            DType::kFloat8E5M2FNUZ, DType::kFloat8E8M0FNU}) {
    const auto floats = converted<float>(dtype, DType::kFloat32, every);
    const auto back = converted<std::uint8_t>(DType::kFloat32, dtype, floats);
    int nans = 0;
    for (std::size_t i = 0; i < every.size(); ++i) {
      if (std::isnan(floats[i]))
        ++nans;
      else
        ASSERT_EQ(back[i], every[i]) << name_of(dtype);
    }
    const int expected = dtype == DType::kFloat8E5M2 ? 6 : dtype == DType::kFloat8E4M3FN ? 2 : 1;
    EXPECT_EQ(nans, expected) << name_of(dtype);
  }
}

TEST(Cast, Float16HasSubnormalsAndOverflowsToInfinity) {
  const auto to = [](float x) { return one<std::uint16_t>(DType::kFloat32, DType::kFloat16, x); };
  EXPECT_EQ(to(0x1p-24F), 0x0001);
  EXPECT_EQ(to(0x1p-25F), 0x0000);  // tie, to even
  EXPECT_EQ(to(0x1.8p-24F), 0x0002);
  EXPECT_EQ(to(65504.0F), 0x7bff);
  EXPECT_EQ(to(65519.0F), 0x7bff);
  EXPECT_EQ(to(65520.0F), 0x7c00);
  EXPECT_EQ(to(static_cast<float>(-kInf)), 0xfc00);
}

TEST(Cast, EachFloat8OverflowsInItsOwnWay) {
  const auto to = [](DType dtype, double x) { return one<std::uint8_t>(DType::kFloat64, dtype, x); };
  EXPECT_EQ(to(DType::kFloat8E4M3FN, 448), 0x7e);
  EXPECT_EQ(to(DType::kFloat8E4M3FN, 1e9), 0x7e);  // the largest number
  EXPECT_EQ(to(DType::kFloat8E4M3FN, -kInf), 0xfe);
  EXPECT_EQ(to(DType::kFloat8E4M3FN, kNaN) & 0x7f, 0x7f);
  EXPECT_EQ(to(DType::kFloat8E5M2, 1e9), 0x7c);      // infinity
  EXPECT_EQ(to(DType::kFloat8E4M3FNUZ, 1e9), 0x80);  // NaN
  EXPECT_EQ(to(DType::kFloat8E5M2FNUZ, -1e9), 0x80);
  EXPECT_EQ(to(DType::kFloat8E4M3FNUZ, -0.0), 0x00);
  EXPECT_EQ(to(DType::kFloat8E4M3FN, -0.0), 0x80);
}

TEST(Cast, E8M0KeepsTheExponentAlone) {
  const auto to = [](float x) { return one<std::uint8_t>(DType::kFloat32, DType::kFloat8E8M0FNU, x); };
  EXPECT_EQ(to(1.0F), 127);
  EXPECT_EQ(to(-1.0F), 127);
  EXPECT_EQ(to(1.5F), 128);
  EXPECT_EQ(to(1.25F), 127);
  EXPECT_EQ(to(0.0F), 0);
  EXPECT_EQ(to(0x1p-127F), 0);
  EXPECT_EQ(to(0x1.8p-127F), 1);
  EXPECT_EQ(to(static_cast<float>(kInf)), 255);
  EXPECT_EQ(one<float>(DType::kFloat8E8M0FNU, DType::kFloat32, std::uint8_t{0}), 0x1p-127F);
}

TEST(Cast, FloatsToIntegersTruncate) {
  EXPECT_EQ(one<std::int32_t>(DType::kFloat32, DType::kInt32, -2.9F), -2);
  EXPECT_EQ(one<std::int8_t>(DType::kFloat64, DType::kInt8, 127.9), 127);
  EXPECT_EQ(one<std::uint64_t>(DType::kFloat64, DType::kUInt64, 0x1p63), std::uint64_t{1} << 63);
  EXPECT_EQ(one<std::int64_t>(DType::kFloat64, DType::kInt64, -0x1p63),
            std::numeric_limits<std::int64_t>::min());
}

TEST(Cast, FloatsThatDoNotFitAnIntegerAreDefined) {
  EXPECT_EQ(one<std::uint8_t>(DType::kFloat32, DType::kUInt8, -1.0F), 255);
  EXPECT_EQ(one<std::int8_t>(DType::kFloat32, DType::kInt8, 300.0F), 44);
  for (const double x : {kNaN, kInf, -kInf, 0x1p64, -0x1p64, 1e300}) {
    EXPECT_EQ(one<std::int64_t>(DType::kFloat64, DType::kInt64, x), 0) << x;
    EXPECT_EQ(one<std::uint16_t>(DType::kFloat64, DType::kUInt16, x), 0) << x;
  }
}

TEST(Cast, IntegersKeepTheirLowBits) {
  EXPECT_EQ(one<std::uint8_t>(DType::kInt64, DType::kUInt8, std::int64_t{-1}), 255);
  EXPECT_EQ(one<std::int64_t>(DType::kInt8, DType::kInt64, std::int8_t{-3}), -3);
  EXPECT_EQ(one<std::int16_t>(DType::kUInt32, DType::kInt16, std::uint32_t{0x18000}), -32768);
}

TEST(Cast, LargeIntegersRoundToFloatOnce) {
  const std::uint64_t x = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 39) + 1;  // just above a tie
  EXPECT_EQ(one<float>(DType::kUInt64, DType::kFloat32, x), 0x1.000002p63F);
  EXPECT_EQ(one<double>(DType::kUInt64, DType::kFloat64, std::numeric_limits<std::uint64_t>::max()), 0x1p64);
}

TEST(Cast, AnythingButZeroIsTrue) {
  EXPECT_EQ(one<std::uint8_t>(DType::kFloat64, DType::kBool, 5e-324), 1);
  EXPECT_EQ(one<std::uint8_t>(DType::kFloat64, DType::kBool, kNaN), 1);
  EXPECT_EQ(one<std::uint8_t>(DType::kFloat64, DType::kBool, -0.0), 0);
  EXPECT_EQ(one<std::uint8_t>(DType::kInt64, DType::kBool, std::int64_t{1} << 40), 1);
  EXPECT_EQ(one<std::uint8_t>(DType::kComplex64, DType::kBool, std::complex<float>(0, 2)), 1);
  EXPECT_EQ(one<std::uint8_t>(DType::kComplex64, DType::kBool, std::complex<float>(0, 0)), 0);
  EXPECT_EQ(one<float>(DType::kBool, DType::kFloat32, std::uint8_t{2}), 1.0F);
}

TEST(Cast, ComplexToRealDropsTheImaginaryPartAndBackIsZero) {
  EXPECT_EQ(one<float>(DType::kComplex128, DType::kFloat32, std::complex<double>(3, 4)), 3.0F);
  EXPECT_EQ(one<std::complex<double>>(DType::kInt16, DType::kComplex128, std::int16_t{-5}),
            std::complex<double>(-5, 0));
  EXPECT_EQ(one<std::complex<float>>(DType::kComplex128, DType::kComplex64, std::complex<double>(1, 2)),
            std::complex<float>(1, 2));
}

TEST(Cast, Float64ToFloat16RoundsAsThisPlatformsTorchDoes) {
  // Just above a tie of float16, and exactly the tie once rounded to float32.
  const double above_tie = 1 + 0x1p-11 + 0x1p-40;
#ifdef __aarch64__
  EXPECT_EQ(one<std::uint16_t>(DType::kFloat64, DType::kFloat16, above_tie), 0x3c01);
#else
  EXPECT_EQ(one<std::uint16_t>(DType::kFloat64, DType::kFloat16, above_tie), 0x3c00);
#endif
  EXPECT_EQ(encode_float<kFloat16>(round_to_odd(above_tie)), 0x3c01U);
  EXPECT_EQ(encode_float<kFloat16>(round_to_odd(-above_tie)), 0xbc01U);
  EXPECT_EQ(encode_float<kFloat16>(round_to_odd(1 + 0x1p-11)), 0x3c00U);
  EXPECT_EQ(encode_float<kFloat16>(round_to_odd(1e300)), 0x7c00U);
}

TEST(Cast, LongRunsConvertLikeShortOnes) {
  for (const std::size_t n : {0, 1, 1023, 1024, 1025, 5000}) {
    std::vector<std::int32_t> from(n);
    for (std::size_t i = 0; i < n; ++i) from[i] = static_cast<std::int32_t>(i % 200);
    const auto to = converted<std::complex<double>>(DType::kInt32, DType::kComplex128, from);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(to[i], std::complex<double>(from[i], 0)) << n;
    const auto back = converted<std::int16_t>(DType::kComplex128, DType::kInt16, to);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(back[i], from[i]) << n;
    const auto truth = converted<std::uint8_t>(DType::kComplex128, DType::kBool, to);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(truth[i], from[i] != 0 ? 1 : 0) << n;
  }
}

TEST(Cast, Float4ConvertsToItselfOnly) {
  EXPECT_EQ(one<std::uint8_t>(DType::kFloat4E2M1FNx2, DType::kFloat4E2M1FNx2, std::uint8_t{0xa7}), 0xa7);
  for (int i = 0; i < kDTypeCount - 1; ++i) {
    const auto other = static_cast<DType>(i);
    EXPECT_FALSE(is_convertible(DType::kFloat4E2M1FNx2, other));
    EXPECT_FALSE(is_convertible(other, DType::kFloat4E2M1FNx2));
  }
  try {
    one<float>(DType::kFloat4E2M1FNx2, DType::kFloat32, std::uint8_t{0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace cairn
