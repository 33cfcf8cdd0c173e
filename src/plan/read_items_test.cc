#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "cairn/plan_steps.h"
#include "plan/checkpoint_index.h"
#include "testing/errors.h"

namespace cairn {
namespace read_items_test {

TensorStorageMetadata stored(std::vector<Box> chunks) {
  TensorStorageMetadata metadata;
  metadata.chunks = std::move(chunks);
  return metadata;
}

// The pairs (wanted, chunk) that items name, in order.
std::vector<std::pair<std::int64_t, std::int64_t>> pairs_of(const std::vector<ReadItem>& items) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const ReadItem& item : items) pairs.emplace_back(*item.dest_index.index, *item.storage_index.index);
  return pairs;
}

TEST(ReadItems, ItemSaysWhatToReadAndWhereItGoes) {
  const auto items =
      create_read_items_for_chunk_list("w", stored({{{0, 0}, {4, 8}}, {{4, 0}, {4, 8}}}), {{{2, 3}, {4, 2}}});
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[1].dest_index, (MetadataIndex{"w", Shape{2, 3}, 0}));
  EXPECT_EQ(items[1].storage_index, (MetadataIndex{"w", Shape{4, 0}, 1}));
  EXPECT_EQ(items[1].dest_offsets, (Shape{2, 0}));
  EXPECT_EQ(items[1].storage_offsets, (Shape{0, 3}));
  EXPECT_EQ(items[1].lengths, (Shape{2, 2}));
}

TEST(ReadItems, ScalarIsReadWhole) {
  const auto items = create_read_items_for_chunk_list("w", stored({Box::whole({})}), {Box::whole({})});
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0].lengths, Shape{});
}

TEST(ReadItems, NothingWantedAndNothingStoredGiveNothing) {
  EXPECT_TRUE(create_read_items_for_chunk_list("w", stored({}), {Box::whole({4})}).empty());
  EXPECT_TRUE(create_read_items_for_chunk_list("w", stored({Box::whole({4})}), {}).empty());
}

TEST(ReadItems, BoxesComeByTheirBeginAndChunksByTheirEndInTheLongestDimension) {
  const TensorStorageMetadata chunks = stored({{{0, 50}, {9, 50}}, {{0, 0}, {9, 50}}});
  const auto items = create_read_items_for_chunk_list("w", chunks, {{{0, 60}, {9, 5}}, {{0, 40}, {9, 20}}});
  const std::vector<std::pair<std::int64_t, std::int64_t>> want{{1, 1}, {1, 0}, {0, 0}};
  EXPECT_EQ(pairs_of(items), want);
}

TEST(ReadItems, BoxesThatLieAreRefusedByName) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const Box& bad : {Box{{-1}, {2}}, Box{{0}, {-1}}, Box{{1}, {kMax}}, Box{{0, 0}, {1, 1}}}) {
    const Error chunk =
        error_of([&] { (void)create_read_items_for_chunk_list("w", stored({bad}), {Box::whole({4})}); });
    EXPECT_EQ(chunk.code(), ErrorCode::kCorrupt) << to_string(bad);
    EXPECT_EQ(chunk.tensor(), "w");
    const Error box = error_of([&] {
      (void)create_read_items_for_chunk_list("w", stored({Box::whole({4})}), {Box::whole({4}), bad});
    });
    EXPECT_EQ(box.code(), ErrorCode::kInvalidArgument) << to_string(bad);
  }
}

// Every chunk that meets a box is found once, in every order of the tree.
TEST(ReadItems, IndexFindsWhatComparingAllFinds) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::int64_t n) {
      return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
    };
    const auto rank = static_cast<std::size_t>(1 + below(5));
    const std::int64_t side = below(2) == 0 ? 20 : std::int64_t{1} << 40;
    const auto draw = [&] {
      Box box{Shape(rank, 0), Shape(rank, 0)};
      for (std::size_t d = 0; d < rank; ++d) {
        box.offsets[d] = below(4) == 0 ? 0 : below(side);
        box.sizes[d] = below(below(3) == 0 ? side : side / 4);
      }
      return box;
    };
    std::vector<Box> chunks;
    for (std::int64_t i = 1 + below(1'000); i > 0; --i) chunks.push_back(draw());
    ChunkIndex index(chunks);
    for (int i = 0; i < 30; ++i) {
      const Box wanted = draw();
      std::vector<std::uint32_t> want;
      for (std::uint32_t k = 0; k < chunks.size(); ++k) {
        if (meet(chunks[k], wanted)) want.push_back(k);
      }
      std::vector<std::uint32_t> found;
      index.find(wanted, found);
      std::sort(found.begin(), found.end());
      ASSERT_EQ(found, want) << "seed " << seed;
    }
  }
}

// All begins but one fall into one cell of the curve, and chunks come in no order: comparing each of the
// boxes with each of the chunks would be 10^9 comparisons.
TEST(ReadItems, ChunksThatDefeatTheCurveAreSearchedInAnotherOrder) {
  std::vector<Box> chunks;
  constexpr std::int64_t kChunks = 100'000;
  for (std::int64_t i = 0; i < kChunks; ++i) chunks.push_back({{i * 7'919 % kChunks, 0}, {1, 100}});
  chunks.push_back({{std::int64_t{1} << 59, 0}, {1, 1}});
  std::vector<Box> wanted;
  for (std::int64_t i = 0; i < 10'000; ++i) wanted.push_back({{i * 10, 0}, {2, 100}});
  EXPECT_EQ(create_read_items_for_chunk_list("w", stored(chunks), wanted).size(), 2 * wanted.size());
}

}  // namespace read_items_test
}  // namespace cairn
