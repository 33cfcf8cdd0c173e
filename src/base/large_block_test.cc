#include "base/large_block.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace cairn {
namespace {

// Fills a block with a pattern that depends on the place.
void fill(void* block, std::size_t from, std::size_t to) {
  auto* bytes = static_cast<unsigned char*>(block);
  for (std::size_t i = from; i < to; i += 509) bytes[i] = static_cast<unsigned char>(i * 31);
}

std::size_t first_difference(const void* block, std::size_t bytes) {
  const auto* have = static_cast<const unsigned char*>(block);
  for (std::size_t i = 0; i < bytes; i += 509)
    if (have[i] != static_cast<unsigned char>(i * 31)) return i;
  return bytes;
}

TEST(LargeBlock, KeepsItsBytesThroughEverySizeItGrowsTo) {
  std::size_t size = 509;
  void* block = resize_block(nullptr, 0, size);
  fill(block, 0, size);
  while (size < (96U << 20)) {
    const std::size_t next = size / 509 * 2 * 509;
    block = resize_block(block, size, next);
    ASSERT_EQ(first_difference(block, size), size) << "grown to " << next;
    fill(block, size, next);
    size = next;
  }
  ASSERT_EQ(first_difference(block, size), size);
  free_block(block, size);
}

TEST(LargeBlock, KeepsWhatFitsWhenItShrinks) {
  void* block = resize_block(nullptr, 0, 9U << 20);
  fill(block, 0, 9U << 20);
  block = resize_block(block, 9U << 20, 4U << 20);
  EXPECT_EQ(first_difference(block, 4U << 20), 4U << 20);
  block = resize_block(block, 4U << 20, 1000);
  EXPECT_EQ(first_difference(block, 1000), 1000U);
  free_block(block, 1000);
}

TEST(LargeBlock, GrowsAlsoWhereItsNeighbourIsInTheWay) {
  void* a = resize_block(nullptr, 0, 2U << 20);
  fill(a, 0, 2U << 20);
  void* b = resize_block(nullptr, 0, 2U << 20);
  a = resize_block(a, 2U << 20, 64U << 20);
  b = resize_block(b, 2U << 20, 64U << 20);
  EXPECT_EQ(first_difference(a, 2U << 20), 2U << 20);
  std::memset(a, 1, 64U << 20);
  std::memset(b, 2, 64U << 20);
  EXPECT_EQ(static_cast<unsigned char*>(a)[(64U << 20) - 1], 1);
  free_block(a, 64U << 20);
  free_block(b, 64U << 20);
}

TEST(LargeBlock, LiesOnAHugePagesBoundary) {
  void* block = resize_block(nullptr, 0, 5U << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2U << 20), 0U);
  free_block(block, 5U << 20);
}

}  // namespace
}  // namespace cairn
