#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "cairn/error.h"
#include "cairn/tensor.h"

namespace cairn {
namespace {

using Kind = CoverProblem::Kind;

// What find_cover_problem must say, by counting for every element the boxes it lies in.
std::optional<Kind> brute_force(const Shape& shape, const std::vector<Box>& boxes) {
  for (const Box& box : boxes) {
    if (!Box::whole(shape).contains(box)) return Kind::kOutOfBounds;
  }
  bool hole = false;
  const Shape strides = contiguous_strides(shape);
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    Box element{shape, Shape(shape.rank(), 1)};
    for (std::size_t d = 0; d < shape.rank(); ++d) element.offsets[d] = i / strides[d] % shape[d];
    int covered = 0;
    for (const Box& box : boxes) covered += box.contains(element) ? 1 : 0;
    if (covered > 1) return Kind::kOverlap;
    hole = hole || covered == 0;
  }
  return hole ? std::optional(Kind::kHole) : std::nullopt;
}

class Tiler {
 public:
  explicit Tiler(unsigned seed) : random_(seed) {}

  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  // Cuts a box in two again and again.
  std::vector<Box> cut(const Shape& shape, std::size_t cuts) {
    std::vector<Box> boxes{Box::whole(shape)};
    for (std::size_t i = 0; i < cuts && shape.rank() > 0; ++i) {
      const auto which = static_cast<std::size_t>(below(static_cast<std::int64_t>(boxes.size())));
      const auto dim = static_cast<std::size_t>(below(static_cast<std::int64_t>(shape.rank())));
      const std::int64_t at = below(boxes[which].sizes[dim] + 1);
      Box upper = boxes[which];
      upper.offsets[dim] += at;
      upper.sizes[dim] -= at;
      boxes[which].sizes[dim] = at;
      boxes.push_back(upper);
    }
    std::shuffle(boxes.begin(), boxes.end(), random_);
    return boxes;
  }

  // Breaks a tiling, or by chance does not.
  void disturb(std::vector<Box>& boxes) {
    const auto which = static_cast<std::size_t>(below(static_cast<std::int64_t>(boxes.size())));
    Box& box = boxes[which];
    const std::size_t dim =
        box.rank() == 0 ? 0 : static_cast<std::size_t>(below(static_cast<std::int64_t>(box.rank())));
    switch (box.rank() == 0 ? below(2) : below(5)) {
      case 0: boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(which)); break;
      case 1: boxes.push_back(Box(box)); break;
      case 2: box.sizes[dim] += 1; break;
      case 3: box.offsets[dim] -= 1; break;
      case 4: box.sizes[dim] = std::max<std::int64_t>(0, box.sizes[dim] - 1); break;
    }
  }

 private:
  std::mt19937 random_;
};

std::vector<Box> grid(std::int64_t rows, std::int64_t columns, std::int64_t side) {
  std::vector<Box> boxes;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) boxes.push_back({{r * side, c * side}, {side, side}});
  }
  return boxes;
}

TEST(Cover, WholeTensorAsOneBoxIsCovered) {
  const std::vector<Box> boxes{Box::whole({4, 5})};
  EXPECT_FALSE(find_cover_problem({4, 5}, boxes));
}

TEST(Cover, ScalarIsCoveredByOneBoxOfRankZero) {
  const Box point{{}, {}};
  EXPECT_FALSE(find_cover_problem({}, std::vector<Box>{point}));
  EXPECT_EQ(find_cover_problem({}, std::vector<Box>{})->kind, Kind::kHole);
  EXPECT_EQ(find_cover_problem({}, std::vector<Box>{})->missing, 1);
  const auto twice = find_cover_problem({}, std::vector<Box>{point, point});
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->kind, Kind::kOverlap);
  EXPECT_EQ(twice->first, 0U);
  EXPECT_EQ(twice->second, 1U);
}

TEST(Cover, TensorWithoutElementsNeedsNoBox) {
  EXPECT_FALSE(find_cover_problem({0, 7}, std::vector<Box>{}));
  EXPECT_FALSE(find_cover_problem({0, 7}, std::vector<Box>{Box::whole({0, 7}), Box::whole({0, 7})}));
}

TEST(Cover, BoxesWithoutVolumeAreIgnoredInsideAndReportedOutside) {
  std::vector<Box> boxes{Box::whole({4, 4}), {{2, 2}, {0, 2}}, {{4, 4}, {0, 0}}};
  EXPECT_FALSE(find_cover_problem({4, 4}, boxes));
  boxes.push_back({{5, 0}, {0, 4}});
  const auto problem = find_cover_problem({4, 4}, boxes);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->kind, Kind::kOutOfBounds);
  EXPECT_EQ(problem->first, 3U);
}

TEST(Cover, OverlapNamesBothBoxes) {
  const std::vector<Box> boxes{{{0, 0}, {2, 4}}, {{2, 0}, {2, 4}}, {{1, 3}, {2, 1}}};
  const auto problem = find_cover_problem({4, 4}, boxes);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->kind, Kind::kOverlap);
  EXPECT_EQ(problem->second, 2U);
  EXPECT_NE(problem->text.find("overlaps chunk 2 at [1:3, 3:4]"), std::string::npos) << problem->text;
}

TEST(Cover, OverlapIsReportedBeforeAHole) {
  const std::vector<Box> boxes{{{0}, {4}}, {{2}, {4}}};
  EXPECT_EQ(find_cover_problem({100}, boxes)->kind, Kind::kOverlap);
}

TEST(Cover, HoleCountsTheMissingElements) {
  const std::vector<Box> boxes{{{0, 0}, {3, 4}}};
  const auto problem = find_cover_problem({4, 4}, boxes);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->kind, Kind::kHole);
  EXPECT_EQ(problem->missing, 4);
  EXPECT_EQ(problem->text, "4 of 16 elements of shape [4, 4] lie in no chunk");
}

TEST(Cover, BoxOfAnotherRankIsOutOfBounds) {
  EXPECT_EQ(find_cover_problem({4, 4}, std::vector<Box>{Box::whole({16})})->kind, Kind::kOutOfBounds);
  EXPECT_EQ(find_cover_problem({4}, std::vector<Box>{Box{{0}, {}}})->kind, Kind::kOutOfBounds);
}

TEST(Cover, NegativeAndHugeSidesAreOutOfBoundsAndNotWrapped) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  for (const Box& box : {Box{{-1}, {2}}, Box{{2}, {-1}}, Box{{kMax}, {kMax}}, Box{{1}, {kMax}},
                         Box{{kMin}, {kMin}}, Box{{kMin}, {kMax}}}) {
    EXPECT_EQ(find_cover_problem({4}, std::vector<Box>{box})->kind, Kind::kOutOfBounds) << to_string(box);
  }
}

TEST(Cover, ShapeNearTheLimitIsCoveredExactly) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  std::vector<Box> boxes{{{0}, {kHuge}}, {{kHuge}, {kHuge}}};
  EXPECT_FALSE(find_cover_problem({2 * kHuge}, boxes));
  boxes[1].offsets[0] += 1;
  boxes[1].sizes[0] -= 1;
  EXPECT_EQ(find_cover_problem({2 * kHuge}, boxes)->missing, 1);
}

TEST(Cover, ShapePastTheLimitIsAnError) {
  try {
    (void)find_cover_problem({std::int64_t{1} << 40, std::int64_t{1} << 40}, std::vector<Box>{});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kLimit);
  }
}

// Five boxes around each other in a plane: no straight line separates them.
TEST(Cover, PinwheelThatNoPlaneSplitsIsCovered) {
  const std::vector<Box> flat{
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_FALSE(find_cover_problem({3, 3}, flat));
}

// The same in space: bars that lock into each other, and the unit cubes between them.
TEST(Cover, KnotInSpaceIsCovered) {
  std::vector<Box> boxes{{{0, 0, 0}, {1, 1, 1}}, {{1, 1, 1}, {1, 1, 1}}, {{2, 2, 2}, {1, 1, 1}},
                         {{0, 0, 1}, {2, 1, 2}}, {{1, 0, 0}, {2, 2, 1}}, {{0, 1, 0}, {1, 2, 2}},
                         {{2, 0, 1}, {1, 2, 2}}, {{1, 2, 0}, {2, 1, 2}}, {{0, 1, 2}, {2, 2, 1}}};
  const Shape shape{3, 3, 3};
  ASSERT_EQ(brute_force(shape, boxes), std::nullopt);
  EXPECT_FALSE(find_cover_problem(shape, boxes));
  boxes[1].offsets = {1, 1, 0};
  EXPECT_EQ(find_cover_problem(shape, boxes)->kind, Kind::kOverlap);
  boxes.erase(boxes.begin() + 1);
  EXPECT_EQ(find_cover_problem(shape, boxes)->missing, 1);
}

TEST(Cover, AgreesWithCountingOnRandomTilingsAndDisturbedOnes) {
  int tried[4] = {};
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Tiler tiler(seed);
    Shape shape(static_cast<std::size_t>(tiler.below(5)), 0);
    for (std::size_t d = 0; d < shape.rank(); ++d) shape[d] = 1 + tiler.below(shape.rank() > 2 ? 4 : 9);
    std::vector<Box> boxes = tiler.cut(shape, static_cast<std::size_t>(tiler.below(18)));
    for (std::int64_t i = tiler.below(3); i > 0 && !boxes.empty(); --i) tiler.disturb(boxes);
    const auto want = brute_force(shape, boxes);
    const auto got = find_cover_problem(shape, boxes);
    ASSERT_EQ(got ? std::optional(got->kind) : std::nullopt, want) << "seed " << seed;
    if (got && got->kind == Kind::kOverlap) {
      ASSERT_LT(got->first, got->second) << "seed " << seed;
      ASSERT_TRUE(intersect(boxes[got->first], boxes[got->second])) << "seed " << seed;
    }
    ++tried[want ? static_cast<int>(*want) : 3];
  }
  for (const int count : tried) EXPECT_GT(count, 200) << "a verdict is hardly tested";
}

// Small boxes at random places: mostly overlaps and groups that no plane splits.
TEST(Cover, AgreesWithCountingOnRandomHeapsOfBoxes) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Tiler tiler(seed);
    const Shape shape(static_cast<std::size_t>(1 + tiler.below(4)), 5);
    std::vector<Box> boxes;
    for (std::int64_t i = tiler.below(14); i > 0; --i) {
      Box box = Box::whole(shape);
      for (std::size_t d = 0; d < shape.rank(); ++d) {
        box.offsets[d] = tiler.below(5);
        box.sizes[d] = tiler.below(std::min<std::int64_t>(4, 6 - box.offsets[d]));
      }
      boxes.push_back(box);
    }
    const auto want = brute_force(shape, boxes);
    const auto got = find_cover_problem(shape, boxes);
    ASSERT_EQ(got ? std::optional(got->kind) : std::nullopt, want) << "seed " << seed;
  }
}

TEST(Cover, GridOfAHundredThousandBoxesIsDecided) {
  std::vector<Box> boxes = grid(400, 250, 4);
  EXPECT_FALSE(find_cover_problem({1600, 1000}, boxes));
  boxes[12345].sizes = {4, 3};
  EXPECT_EQ(find_cover_problem({1600, 1000}, boxes)->missing, 4);
  boxes[12345] = boxes[65432];
  const auto problem = find_cover_problem({1600, 1000}, boxes);
  EXPECT_EQ(problem->first, 12345U);
  EXPECT_EQ(problem->second, 65432U);
}

}  // namespace
}  // namespace cairn
