#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "cairn/tensor.h"

namespace cairn {
namespace {

TEST(DType, NamesAndSizesGoBothWays) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    names.insert(name_of(dtype));
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDTypeCount));
  EXPECT_EQ(name_of(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(name_of(DType::kFloat4E2M1FNx2), "float4_e2m1fn_x2");
  EXPECT_EQ(item_size(DType::kComplex128), 16U);
  EXPECT_EQ(item_size(DType::kComplex32), 4U);
  EXPECT_EQ(item_size(DType::kFloat8E8M0FNU), 1U);
}

TEST(DType, UnknownNameIsNothing) {
  EXPECT_FALSE(dtype_from_name("float31"));
  EXPECT_FALSE(dtype_from_name("torch.float32"));
  EXPECT_FALSE(dtype_from_name(""));
}

}  // namespace
}  // namespace cairn
