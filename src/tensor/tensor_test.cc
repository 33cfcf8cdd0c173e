#include "cairn/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cairn/error.h"
#include "testing/errors.h"

namespace cairn {
namespace {

TEST(TensorView, KnowsWhetherItIsContiguous) {
  std::array<float, 24> memory{};
  TensorView view = TensorView::contiguous(memory.data(), DType::kFloat32, {2, 3, 4});
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.bytes(), 96U);
  EXPECT_FALSE(view.narrow({{0, 0, 0}, {2, 3, 2}}).is_contiguous());
  EXPECT_TRUE(view.narrow({{1, 0, 0}, {1, 3, 4}}).is_contiguous());
  EXPECT_TRUE(view.narrow({{1, 0, 0}, {0, 3, 2}}).is_contiguous());
  view.shape = {1, 3, 4};
  view.strides = {99, 4, 1};
  EXPECT_TRUE(view.is_contiguous());
}

TEST(TensorView, NarrowMovesToTheBox) {
  std::array<std::int32_t, 12> memory;
  for (int i = 0; i < 12; ++i) memory[static_cast<std::size_t>(i)] = i;
  const TensorView view = TensorView::contiguous(memory.data(), DType::kInt32, {3, 4});
  const TensorView part = view.narrow({{1, 2}, {2, 2}});
  EXPECT_EQ(part.shape, Shape({2, 2}));
  EXPECT_EQ(part.strides, Shape({4, 1}));
  std::int32_t first;
  std::memcpy(&first, part.data, sizeof(first));
  EXPECT_EQ(first, 6);
}

TEST(TensorView, NarrowRefusesBoxesThatReachOut) {
  const TensorView view = TensorView::contiguous(nullptr, DType::kInt8, {3, 4});
  EXPECT_EQ(code_of([&] { view.narrow({{1, 0}, {3, 4}}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { view.narrow({{-1, 0}, {1, 4}}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { view.narrow({{0}, {3}}); }), ErrorCode::kInvalidArgument);
  EXPECT_NO_THROW(view.narrow({{3, 4}, {0, 0}}));
}

TEST(Tensor, MemoryIsPageAlignedAtEverySize) {
  for (const std::int64_t n : {0, 1, 4096, 100'000, 9 << 20}) {
    const Tensor tensor = Tensor::empty(DType::kUInt8, {n});
    EXPECT_NE(tensor.view().data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 4096, 0U) << n;
    EXPECT_EQ(tensor.bytes().size(), static_cast<std::size_t>(n));
  }
}

TEST(Tensor, ZerosAreZeroAlsoInReusedMemory) {
  for (int i = 0; i < 3; ++i) {
    Tensor tensor = Tensor::zeros(DType::kUInt8, {5000});
    EXPECT_TRUE(std::all_of(tensor.bytes().begin(), tensor.bytes().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill(tensor.bytes().begin(), tensor.bytes().end(), std::byte{0xff});
  }
}

TEST(Tensor, CopiesShareMemoryAndKeepItAlive) {
  Tensor outer;
  {
    Tensor inner = Tensor::zeros(DType::kUInt8, {8});
    outer = inner;
    inner.bytes()[3] = std::byte{7};
  }
  EXPECT_EQ(outer.bytes()[3], std::byte{7});
  EXPECT_EQ(outer.owner().use_count(), 1);
}

TEST(Tensor, BytesOfAStridedTensorIsAnError) {
  const Tensor whole = Tensor::zeros(DType::kInt16, {4, 4});
  const Tensor part(whole.view().narrow({{0, 0}, {4, 2}}), whole.owner());
  EXPECT_EQ(code_of([&] { (void)part.bytes(); }), ErrorCode::kInvalidArgument);
}

TEST(Tensor, ImpossibleSizesAreLimitErrors) {
  EXPECT_EQ(code_of([] { Tensor::empty(DType::kComplex128, {std::int64_t{1} << 61}); }), ErrorCode::kLimit);
  EXPECT_EQ(code_of([] { Tensor::empty(DType::kComplex128, {std::int64_t{1} << 57}); }), ErrorCode::kLimit);
  EXPECT_EQ(code_of([] { Tensor::empty(DType::kInt8, {-1}); }), ErrorCode::kInvalidArgument);
}

TEST(Tensor, ElementsAreReadAndWrittenByTheirType) {
  Tensor tensor = Tensor::zeros(DType::kFloat32, {2, 3});
  tensor.at<float>({1, 2}) = 0.5F;
  EXPECT_EQ(tensor.values<float>()[5], 0.5F);
  for (float& value : tensor.values<float>()) value += 1;
  const Tensor& same = tensor;
  EXPECT_EQ(same.at<float>({1, 2}), 1.5F);
  EXPECT_EQ(same.values<float>().size(), 6U);
  Tensor complex = Tensor::zeros(DType::kComplex128, {});
  complex.at<std::complex<double>>({}) = {1, 2};
  EXPECT_EQ(complex.values<std::complex<double>>()[0], (std::complex<double>{1, 2}));
}

TEST(Tensor, ElementsOfAPartFollowItsStrides) {
  Tensor tensor = Tensor::zeros(DType::kInt64, {4, 4});
  for (std::int64_t i = 0; i < 16; ++i) tensor.values<std::int64_t>()[static_cast<std::size_t>(i)] = i;
  const TensorView part = tensor.view().narrow({{1, 2}, {3, 2}});
  EXPECT_EQ(part.at<std::int64_t>({2, 1}), 15);
  part.at<std::int64_t>({0, 0}) = -6;
  EXPECT_EQ(tensor.at<std::int64_t>({1, 2}), -6);
  EXPECT_EQ(code_of([&] { (void)part.values<std::int64_t>(); }), ErrorCode::kInvalidArgument);
}

TEST(Tensor, ElementsOfAnotherTypeOrPlaceAreErrorsThatSaySo) {
  Tensor tensor = Tensor::zeros(DType::kBFloat16, {2, 3});
  const Error wrong = error_of([&] { (void)tensor.values<float>(); });
  EXPECT_EQ(wrong.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(wrong, "holds bfloat16, and is asked for float32")) << wrong.what();
  tensor = Tensor::zeros(DType::kInt32, {2, 3});
  for (const Shape& index : {Shape{2, 0}, Shape{0, -1}, Shape{0}, Shape{0, 0, 0}, Shape{}}) {
    const Error e = error_of([&] { (void)tensor.at<std::int32_t>(index); });
    EXPECT_TRUE(mentions(e, "there is no element " + to_string(index))) << e.what();
  }
  TensorView odd = tensor.view();
  ++odd.data;
  EXPECT_EQ(code_of([&] { (void)odd.at<std::int32_t>({0, 0}); }), ErrorCode::kInvalidArgument);
  TensorView away = tensor.view();
  away.device.kind = Device::Kind::kCuda;
  EXPECT_EQ(code_of([&] { (void)away.at<std::int32_t>({0, 0}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
