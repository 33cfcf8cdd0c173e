#include "cairn/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tensor/float_formats.h"
#include "testing/errors.h"

namespace cairn {
namespace {

TensorView view(std::vector<std::uint8_t>& bytes, DType dtype, Shape shape) {
  return TensorView::contiguous(bytes.data(), dtype, std::move(shape));
}

TensorView view(std::vector<float>& numbers, Shape shape) {
  return TensorView::contiguous(numbers.data(), DType::kFloat32, std::move(shape));
}

std::vector<std::uint8_t> random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

TEST(DequantizeBlocks, MultipliesEveryElementByTheScaleOfItsBlock) {
  constexpr std::int64_t kRows = 70, kColumns = 90, kBlock = 32;
  std::vector<std::uint8_t> codes = random_bytes(kRows * kColumns);
  std::vector<float> scales = {0.5F, 1.25F, 3.0F, -1.0F, 1e-3F, 7.0F, 2.0F, 0.1F, 1e10F};
  std::vector<float> out(codes.size());
  dequantize_blocks(view(codes, DType::kFloat8E4M3FN, {kRows, kColumns}), 0, 0, kBlock, view(scales, {3, 3}),
                    view(out, {kRows, kColumns}));
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const auto at = static_cast<std::size_t>(i * kColumns + j);
      const float scale = scales[static_cast<std::size_t>(i / kBlock * 3 + j / kBlock)];
      const float wanted = decode_float8<kFloat8E4M3FN>(codes[at]) * scale;
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(out[at]));
      } else {
        ASSERT_EQ(out[at], wanted) << i << ", " << j;
      }
    }
  }
}

TEST(DequantizeBlocks, APartIsTheSameAsThatPartOfTheWhole) {
  constexpr std::int64_t kSide = 100, kBlock = 48;
  std::vector<std::uint8_t> codes = random_bytes(kSide * kSide);
  for (std::uint8_t& code : codes) code &= 0x3f;
  std::vector<float> scales = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> whole(codes.size());
  const TensorView elements = view(codes, DType::kFloat8E5M2, {kSide, kSide});
  dequantize_blocks(elements, 0, 0, kBlock, view(scales, {3, 3}), view(whole, {kSide, kSide}));
  const Box box{{13, 41}, {70, 29}};
  std::vector<float> part(70 * 29);
  dequantize_blocks(elements.narrow(box), 13, 41, kBlock, view(scales, {3, 3}), view(part, {70, 29}));
  for (std::int64_t i = 0; i < 70; ++i)
    for (std::int64_t j = 0; j < 29; ++j)
      ASSERT_EQ(part[static_cast<std::size_t>(i * 29 + j)],
                whole[static_cast<std::size_t>((13 + i) * kSide + 41 + j)]);
}

TEST(DequantizeBlocks, RoundsTheProductOnceToTheWantedType) {
  std::vector<std::uint8_t> codes = {0x39};  // 1.125
  std::vector<float> scales = {1.0F + 0x1p-9F};
  std::uint16_t out = 0;
  const auto to = TensorView::contiguous(&out, DType::kBFloat16, {1, 1});
  dequantize_blocks(view(codes, DType::kFloat8E4M3FN, {1, 1}), 0, 0, 128, view(scales, {1, 1}), to);
  EXPECT_EQ(out, float_to_bfloat16(1.125F * (1.0F + 0x1p-9F)));
}

TEST(DequantizeBlocks, TakesElementsOfOtherTypes) {
  std::vector<float> elements = {1, 2, 3, 4}, scales = {10, 100}, out(4);
  dequantize_blocks(view(elements, {1, 4}), 0, 0, 2, view(scales, {1, 2}), view(out, {1, 4}));
  EXPECT_EQ(out, (std::vector<float>{10, 20, 300, 400}));
}

TEST(DequantizeBlocks, RefusesTooFewScales) {
  std::vector<std::uint8_t> codes(64);
  std::vector<float> scales(2), out(64);
  EXPECT_EQ(error_of([&] {
              dequantize_blocks(view(codes, DType::kFloat8E4M3FN, {8, 8}), 0, 0, 4, view(scales, {1, 2}),
                                view(out, {8, 8}));
            }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(DequantizeMxfp4, TakesTheLowerHalfOfAByteFirst) {
  std::vector<std::uint8_t> codes = {0x71, 0x9f}, scales = {127, 128};
  std::vector<float> out(4);
  dequantize_mxfp4(view(codes, DType::kUInt8, {1, 2}), view(scales, DType::kUInt8, {1, 2}), 0,
                   view(out, {1, 4}));
  EXPECT_EQ(out, (std::vector<float>{0.5F, 6.0F, -12.0F, -1.0F}));
}

TEST(DequantizeMxfp4, EveryBeginningAndEndGivesThatPartOfTheWhole) {
  constexpr std::int64_t kGroups = 3, kBytes = 4, kNumbers = 2 * kGroups * kBytes;
  std::vector<std::uint8_t> codes = random_bytes(2 * kGroups * kBytes), scales = {126, 127, 130, 1, 200, 255};
  std::vector<float> whole(2 * kNumbers);
  const TensorView from = view(codes, DType::kUInt8, {2, kGroups * kBytes});
  const TensorView by = view(scales, DType::kUInt8, {2, kGroups});
  dequantize_mxfp4(from, by, 0, view(whole, {2, kNumbers}));
  for (std::int64_t first = 0; first < kNumbers; ++first) {
    for (std::int64_t count = 1; first + count <= kNumbers; ++count) {
      std::vector<float> part(static_cast<std::size_t>(2 * count));
      dequantize_mxfp4(from, by, first, view(part, {2, count}));
      for (std::int64_t i = 0; i < 2 * count; ++i)
        ASSERT_EQ(part[static_cast<std::size_t>(i)],
                  whole[static_cast<std::size_t>(i / count * kNumbers + first + i % count)]);
    }
  }
}

TEST(DequantizeMxfp4, LargeAndSmallScalesGoToTheEndsOfTheRange) {
  std::vector<std::uint8_t> codes = {0x71, 0x71}, scales = {0, 255};
  std::vector<float> out(4);
  dequantize_mxfp4(view(codes, DType::kUInt8, {1, 2}), view(scales, DType::kUInt8, {1, 2}), 0,
                   view(out, {1, 4}));
  EXPECT_EQ(out,
            (std::vector<float>{0x1p-128F, 6 * 0x1p-127F, 0x1p127F, std::numeric_limits<float>::infinity()}));
}

TEST(DequantizeMxfp4, RefusesScalesOfAnotherShape) {
  std::vector<std::uint8_t> codes(8), scales(3);
  std::vector<float> out(16);
  EXPECT_EQ(error_of([&] {
              dequantize_mxfp4(view(codes, DType::kUInt8, {1, 8}), view(scales, DType::kUInt8, {1, 3}), 0,
                               view(out, {1, 16}));
            }).code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
