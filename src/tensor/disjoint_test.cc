#include "tensor/disjoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cairn {
namespace {

std::optional<Overlap> brute_force(const std::vector<Box>& boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (intersect(boxes[k], boxes[i])) return Overlap{k, i};
    }
  }
  return std::nullopt;
}

// Slabs one element thick, peeled off in turn from each dimension: a plane always splits off one box only.
std::vector<Box> peel(std::int64_t slabs, std::size_t rank) {
  Box rest = Box::whole(Shape(rank, slabs + 1));
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < slabs; ++i) {
    const std::size_t dim = static_cast<std::size_t>(i) % rank;
    Box slab = rest;
    slab.sizes[dim] = 1;
    boxes.push_back(slab);
    rest.offsets[dim] += 1;
    rest.sizes[dim] -= 1;
  }
  return boxes;
}

// Bars through all of space in all three directions that pass each other: no plane misses them.
std::vector<Box> weave(std::int64_t n) {
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < 2 * n; i += 2) {
    for (std::int64_t k = 0; k < 2 * n; k += 2) {
      boxes.push_back({{0, i, k}, {2 * n, 1, 1}});
      boxes.push_back({{i, 0, k + 1}, {1, 2 * n, 1}});
      boxes.push_back({{i + 1, k + 1, 0}, {1, 1, 2 * n}});
    }
  }
  return boxes;
}

TEST(Disjoint, NoBoxAndOneBoxDoNotOverlap) {
  EXPECT_FALSE(find_overlap(std::vector<Box>{}));
  EXPECT_FALSE(find_overlap(std::vector<Box>{Box::whole({4})}));
}

TEST(Disjoint, EqualBoxesOverlapUnlessTheyAreEmpty) {
  EXPECT_TRUE(find_overlap(std::vector<Box>(2, Box::whole({4, 4}))));
  EXPECT_TRUE(find_overlap(std::vector<Box>(2, Box::whole({}))));
  EXPECT_FALSE(find_overlap(std::vector<Box>(2, Box::whole({4, 0}))));
}

TEST(Disjoint, AgreesWithComparingAllPairs) {
  int with = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::int64_t n) {
      return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
    };
    const auto rank = static_cast<std::size_t>(1 + below(4));
    const std::int64_t side = below(2) == 0 ? 12 : 400;
    std::vector<Box> boxes;
    for (std::int64_t i = 30 + below(200); i > 0; --i) {
      Box box{Shape(rank, 0), Shape(rank, 0)};
      for (std::size_t d = 0; d < rank; ++d) {
        box.offsets[d] = below(side);
        box.sizes[d] = below(std::min<std::int64_t>(side - box.offsets[d], side / 8 + 1) + 1);
      }
      // Some heaps are pruned until they are disjoint or nearly so.
      if (seed % 2 == 0 && std::any_of(boxes.begin(), boxes.end(),
                                       [&](const Box& other) { return intersect(other, box).has_value(); })) {
        if (below(300) != 0) continue;
      }
      boxes.push_back(box);
    }
    const auto want = brute_force(boxes);
    const auto got = find_overlap(boxes);
    ASSERT_EQ(got.has_value(), want.has_value()) << "seed " << seed;
    if (!got) continue;
    EXPECT_NE(got->first, got->second);
    EXPECT_TRUE(intersect(boxes[got->first], boxes[got->second])) << "seed " << seed;
    ++with;
  }
  EXPECT_GT(with, 100);
  EXPECT_LT(with, 395);
}

// Each of these takes minutes when all pairs are compared, or when planes split off one box at a time.
TEST(Disjoint, SlabsPeeledFromAllSidesAreDecided) {
  std::vector<Box> boxes = peel(50'000, 3);
  EXPECT_FALSE(find_overlap(boxes));
  boxes[40'000].sizes[2] += 1;
  boxes[40'000].offsets[2] -= 1;
  EXPECT_TRUE(find_overlap(boxes));
}

TEST(Disjoint, WovenBarsAreDecided) {
  std::vector<Box> boxes = weave(100);
  EXPECT_FALSE(find_overlap(boxes));
  boxes.back().sizes[0] = 2;
  boxes.back().offsets[0] -= 1;
  EXPECT_TRUE(find_overlap(boxes));
}

}  // namespace
}  // namespace cairn
