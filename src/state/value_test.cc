#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cairn/error.h"
#include "cairn/state_dict.h"

namespace cairn {
namespace {

Tensor iota(DType dtype, Shape shape) {
  Tensor t = Tensor::zeros(dtype, std::move(shape));
  auto bytes = t.bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return t;
}

Tensor transposed(const Tensor& t) {
  TensorView v = t.view();
  v.shape = {t.view().shape[1], t.view().shape[0]};
  v.strides = {t.view().strides[1], t.view().strides[0]};
  return {v, t.owner()};
}

Value nested_lists(int depth) {
  Value v = 1;
  for (int i = 0; i < depth; ++i) {
    List around;
    around.push_back(std::move(v));  // an initializer list would copy
    v = std::move(around);
  }
  return v;
}

TEST(Value, KindsAreNeverEqualToEachOther) {
  const List kinds{None{},         false,   0,       BigInt{}, 0.0,      "",
                   Bytes{},        List{},  Tuple{}, Dict{},   Tensor{}, ShardedTensor{},
                   StoredTensor{}, Opaque{}};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    for (std::size_t j = 0; j < kinds.size(); ++j) EXPECT_EQ(kinds[i] == kinds[j], i == j) << i << " " << j;
  }
}

TEST(Value, PlainValuesCompareByContent) {
  EXPECT_NE(Value(1), Value(2));
  EXPECT_NE(Value(1.5), Value(2.5));
  EXPECT_NE(Value("a"), Value("b"));
  EXPECT_NE(Value(Bytes{"a"}), Value(Bytes{"b"}));
  EXPECT_NE(Value(List{1, 2}), Value(List{1, 3}));
  EXPECT_NE(Value(List{1, 2}), Value(List{1}));
  EXPECT_NE(Value(Tuple{{1}}), Value(Tuple{{2}}));
  EXPECT_NE(Value(Opaque{"a", "x"}), Value(Opaque{"a", "y"}));
  EXPECT_EQ(Value(Tuple{{1, "x"}}), Value(Tuple{{1, "x"}}));
}

TEST(Value, NanEqualsItsCopy) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Value(nan), Value(nan));
  EXPECT_NE(Value(nan), Value(1.0));
}

TEST(Value, TensorsCompareByTypeShapeAndBytes) {
  const Tensor t = iota(DType::kInt32, {2, 3});
  EXPECT_EQ(Value(t), Value(iota(DType::kInt32, {2, 3})));
  EXPECT_NE(Value(t), Value(iota(DType::kFloat32, {2, 3})));
  EXPECT_NE(Value(t), Value(iota(DType::kInt32, {3, 2})));
  Tensor other = iota(DType::kInt32, {2, 3});
  other.bytes().back() = std::byte{0};
  EXPECT_NE(Value(t), Value(other));
  EXPECT_EQ(Value(Tensor::zeros(DType::kInt8, {0, 3})), Value(Tensor::zeros(DType::kInt8, {0, 3})));
}

TEST(Value, TensorsCompareThroughStrides) {
  const Tensor t = iota(DType::kInt16, {3, 5});
  Tensor copied = Tensor::empty(DType::kInt16, {5, 3});
  for (int r = 0; r < 5; ++r) {
    for (int c = 0; c < 3; ++c) std::memcpy(&copied.bytes()[2 * (r * 3 + c)], &t.bytes()[2 * (c * 5 + r)], 2);
  }
  EXPECT_EQ(Value(transposed(t)), Value(copied));
  copied.bytes()[10] ^= std::byte{1};
  EXPECT_NE(Value(transposed(t)), Value(copied));
}

TEST(Value, ShardedTensorsCompareByShards) {
  ShardedTensor a;
  a.global_shape = {4};
  a.shards.push_back({Box{{0}, {2}}, iota(DType::kFloat32, {2})});
  ShardedTensor b = a;
  EXPECT_EQ(Value(a), Value(b));
  b.shards[0].box.offsets = {2};
  EXPECT_NE(Value(a), Value(b));
  b = a;
  b.shards[0].data = Tensor::zeros(DType::kFloat32, {2});
  EXPECT_NE(Value(a), Value(b));
}

TEST(Value, ComparingBeyondTheNestingLimitIsAnErrorNotACrash) {
  EXPECT_EQ(nested_lists(1000), nested_lists(1000));
  const Value a = nested_lists(5000), b = nested_lists(5000);
  try {
    EXPECT_EQ(a, b);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kLimit);
  }
}

}  // namespace
}  // namespace cairn
