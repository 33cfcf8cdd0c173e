#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "cairn/tensor.h"
#include "testing/errors.h"

namespace cairn {
namespace {

TEST(Shape, HoldsFewAndManyDimensions) {
  for (std::size_t rank = 0; rank < 10; ++rank) {
    std::vector<std::int64_t> dims;
    for (std::size_t i = 0; i < rank; ++i) dims.push_back(static_cast<std::int64_t>(i) + 5);
    const Shape shape{std::span<const std::int64_t>(dims)};
    ASSERT_EQ(shape.rank(), rank);
    EXPECT_TRUE(std::equal(shape.begin(), shape.end(), dims.begin(), dims.end()));
    EXPECT_EQ(Shape(rank, 7), Shape(std::vector<std::int64_t>(rank, 7)));
  }
}

// Every pair of ranks, so that memory moves between inline and heap in all ways.
TEST(Shape, CopiesAndMovesBetweenAllRanks) {
  for (std::size_t from = 0; from < 6; ++from) {
    for (std::size_t to = 0; to < 6; ++to) {
      const Shape source(from, 3);
      Shape copied(to, 9);
      copied = source;
      EXPECT_EQ(copied, source);
      Shape moved(to, 9);
      moved = std::move(copied);
      EXPECT_EQ(moved, source);
      EXPECT_EQ(copied.rank(), 0U);  // NOLINT: a moved-from shape is empty
      Shape& itself = moved;
      moved = itself;
      EXPECT_EQ(moved, source);
      const Shape built(std::move(moved));
      EXPECT_EQ(built, source);
    }
  }
}

TEST(Shape, NumelIsTheProduct) {
  EXPECT_EQ(Shape({}).numel(), 1);
  EXPECT_EQ(Shape({3, 4, 5, 6}).numel(), 360);
  EXPECT_EQ((Shape{3, 0, std::numeric_limits<std::int64_t>::max()}).numel(), 0);
  EXPECT_EQ((Shape{std::int64_t{1} << 31, std::int64_t{1} << 31}).numel(), std::int64_t{1} << 62);
}

TEST(Shape, NumelRefusesNegativeAndHuge) {
  EXPECT_EQ(code_of([] { (void)Shape({2, -1}).numel(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { (void)Shape({0, -1}).numel(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { (void)Shape({(std::int64_t{1} << 62) + 1}).numel(); }), ErrorCode::kLimit);
  EXPECT_EQ(code_of([] {
              (void)Shape({std::int64_t{1} << 33, std::int64_t{1} << 33}).numel();
            }),
            ErrorCode::kLimit);
}

TEST(Shape, EqualityAndHashLookAtRankAndDimensions) {
  EXPECT_NE(Shape({1, 2}), Shape({2, 1}));
  EXPECT_NE(Shape({1}), Shape({1, 1}));
  EXPECT_EQ(hash_of(Shape({4, 5, 6, 7})), hash_of(Shape({4, 5, 6, 7})));
  std::set<std::size_t> hashes;
  for (std::int64_t a = 0; a < 30; ++a) {
    for (std::int64_t b = 0; b < 30; ++b) hashes.insert(hash_of(Shape{a * 4096, b * 4096}));
  }
  EXPECT_EQ(hashes.size(), 900U);
}

TEST(Shape, PrintsAsAList) {
  EXPECT_EQ(to_string(Shape{4096, 1024}), "[4096, 1024]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, ContiguousStridesAreTorchs) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), Shape({12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 3}), Shape({3, 3, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape({}));
  EXPECT_EQ(code_of([] { contiguous_strides({0, std::int64_t{1} << 62, 4}); }), ErrorCode::kLimit);
}

}  // namespace
}  // namespace cairn
