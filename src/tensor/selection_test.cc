#include "tensor/selection.h"

#include <random>

#include "testing/errors.h"

namespace cairn {
namespace {

TEST(CompleteSelection, TakesMissingDimensionsWhole) {
  EXPECT_EQ(complete_selection({{1, 2, 1}}, {4, 5}), (Selection{{1, 2, 1}, {0, 5, 1}}));
  EXPECT_EQ(complete_selection({}, {}), Selection{});
  EXPECT_EQ(complete_selection({}, {0, 3}), (Selection{{0, 0, 1}, {0, 3, 1}}));
}

TEST(CompleteSelection, RefusesWhatLeavesTheShape) {
  const Shape shape{4};
  for (const Range bad :
       {Range{0, 5, 1}, Range{3, 2, 1}, Range{0, 3, 2}, Range{-1, 1, 1}, Range{5, 0, 1}, Range{0, -1, 1},
        Range{0, 1, 0}, Range{0, 1, -1}, Range{0, INT64_MAX, INT64_MAX}, Range{4, 1, 1}}) {
    EXPECT_EQ(error_of([&] { complete_selection({bad}, shape); }).code(), ErrorCode::kInvalidArgument)
        << bad.start << " " << bad.count << " " << bad.step;
  }
  EXPECT_EQ(error_of([&] {
              complete_selection({{0, 1, 1}, {0, 1, 1}}, shape);
            }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_NO_THROW(complete_selection({{4, 0, 1}}, shape));
}

TEST(PartInBox, AgreesWithTestingEveryElement) {
  const unsigned seed = 20240607;
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const Range range{pick(0, 10), pick(0, 8), pick(1, 4)};
    const Box box{{pick(0, 20)}, {pick(0, 12)}};
    std::vector<std::int64_t> inside;  // positions in the selection
    for (std::int64_t k = 0; k < range.count; ++k) {
      const std::int64_t element = range.start + k * range.step;
      if (element >= box.offsets[0] && element < box.offsets[0] + box.sizes[0]) inside.push_back(k);
    }
    const auto part = part_in_box({range}, box);
    ASSERT_EQ(part.has_value(), !inside.empty());
    if (!part) continue;
    EXPECT_EQ(part->to.offsets[0], inside.front());
    EXPECT_EQ(part->to.sizes[0], static_cast<std::int64_t>(inside.size()));
    EXPECT_EQ(part->from[0].start, range.start + inside.front() * range.step - box.offsets[0]);
    EXPECT_EQ(part->from[0].count, static_cast<std::int64_t>(inside.size()));
  }
}

TEST(PartInBox, ScalarsMeet) { EXPECT_TRUE(part_in_box({}, Box{}).has_value()); }

TEST(PartInBox, RefusesNegativePlacesAndOnesPast64Bits) {
  EXPECT_EQ(error_of([] { part_in_box({{0, 1, 1}}, {{-1}, {2}}); }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of([] { part_in_box({{0, 1, 1}}, {{0}, {-2}}); }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of([] { part_in_box({{0, 1, 1}}, {{INT64_MAX}, {1}}); }).code(), ErrorCode::kLimit);
}

TEST(FindMissingBox, IsNothingWhenAllIsCovered) {
  const Selection whole{{0, 4, 1}, {0, 4, 1}};
  EXPECT_FALSE(find_missing_box(whole, {{{0, 0}, {2, 4}}, {{2, 0}, {2, 2}}, {{2, 2}, {2, 2}}}));
}

TEST(FindMissingBox, IsTheHoleBetweenParts) {
  const Selection whole{{0, 4, 1}, {0, 4, 1}};
  const auto missing = find_missing_box(whole, {{{0, 0}, {2, 4}}, {{2, 2}, {2, 2}}});
  EXPECT_EQ(missing, (Box{{2, 0}, {2, 2}}));
}

TEST(FindMissingBox, IsInTheTensorsOwnCoordinates) {
  const auto missing = find_missing_box({{10, 5, 3}}, {{{0}, {3}}});
  EXPECT_EQ(missing, (Box{{19}, {4}}));  // elements 19 and 22
}

}  // namespace
}  // namespace cairn
