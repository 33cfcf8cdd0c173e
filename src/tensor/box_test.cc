#include <gtest/gtest.h>

#include <limits>

#include "cairn/error.h"
#include "cairn/tensor.h"
#include "testing/errors.h"

namespace cairn {
namespace {

TEST(Box, IntersectionOfTouchingBoxesIsEmpty) { EXPECT_FALSE(intersect({{0, 0}, {2, 2}}, {{2, 0}, {2, 2}})); }

TEST(Box, IntersectionIsTheCommonPart) {
  const auto common = intersect({{0, 3}, {4, 4}}, {{2, 0}, {9, 5}});
  ASSERT_TRUE(common);
  EXPECT_EQ(*common, (Box{{2, 3}, {2, 2}}));
  EXPECT_TRUE(intersect({{}, {}}, {{}, {}}));
  EXPECT_FALSE(intersect({{1}, {0}}, {{0}, {4}}));
}

TEST(Box, IntersectionWithSidesPastTheLastNumberDoesNotWrap) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto common = intersect({{kMax - 2}, {kMax}}, {{0}, {kMax}});
  ASSERT_TRUE(common);
  EXPECT_EQ(*common, (Box{{kMax - 2}, {2}}));
  EXPECT_FALSE(intersect({{std::numeric_limits<std::int64_t>::min()}, {-5}}, {{0}, {4}}));
}

TEST(Box, IntersectionOfDifferentRanksIsAnError) {
  EXPECT_EQ(code_of([] { intersect({{0}, {1}}, {{0, 0}, {1, 1}}); }), ErrorCode::kInvalidArgument);
}

TEST(Box, ContainsItselfAndItsPartsOnly) {
  const Box box{{2, 2}, {4, 4}};
  EXPECT_TRUE(box.contains(box));
  EXPECT_TRUE(box.contains({{3, 2}, {3, 4}}));
  EXPECT_TRUE(box.contains({{6, 6}, {0, 0}}));
  EXPECT_FALSE(box.contains({{3, 2}, {4, 4}}));
  EXPECT_FALSE(box.contains({{1, 2}, {4, 4}}));
  EXPECT_FALSE(box.contains({{7, 6}, {0, 0}}));
  EXPECT_FALSE(box.contains({{3, 3}, {-1, 1}}));
}

TEST(Box, IsEmptyWhenASideIs) {
  EXPECT_TRUE((Box{{0, 0}, {3, 0}}.empty()));
  EXPECT_FALSE((Box{{}, {}}.empty()));
  EXPECT_EQ(Box::whole({3, 4}).volume(), 12);
}

TEST(Box, PrintsAsSlices) {
  EXPECT_EQ(to_string(Box{{0, 8}, {4, 8}}), "[0:4, 8:16]");
  EXPECT_EQ(to_string(Box{{}, {}}), "[]");
}

}  // namespace
}  // namespace cairn
