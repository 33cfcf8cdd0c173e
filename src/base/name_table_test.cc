#include "base/name_table.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(NameTable, EqualNamesGetEqualNumbersInOrderOfArrival) {
  NameTable table;
  EXPECT_EQ(table.intern("b"), 0U);
  EXPECT_EQ(table.intern("a"), 1U);
  EXPECT_EQ(table.intern("b"), 0U);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table[1], "a");
}

TEST(NameTable, TheEmptyNameIsAName) {
  NameTable table;
  EXPECT_EQ(table.find(""), std::nullopt);
  EXPECT_EQ(table.intern(""), 0U);
  EXPECT_EQ(table.find(""), 0U);
}

TEST(NameTable, FindsAllOfManyNamesAndNoOthers) {
  NameTable table;
  for (std::uint32_t i = 0; i < 10000; ++i) ASSERT_EQ(table.intern("name." + std::to_string(i)), i);
  for (std::uint32_t i = 0; i < 10000; ++i) ASSERT_EQ(table.find("name." + std::to_string(i)), i);
  EXPECT_EQ(table.find("name.10000"), std::nullopt);
}

TEST(NameTable, KeepsItsNamesWhenRoomIsMadeForMore) {
  NameTable table;
  for (std::uint32_t i = 0; i < 100; ++i) table.intern("name." + std::to_string(i));
  table.reserve(5000);
  for (std::uint32_t i = 0; i < 5000; ++i) ASSERT_EQ(table.intern("name." + std::to_string(i)), i);
}

// Each pair of names differs in just the bits that cancel out in a multiplicative hash of 64 bits, whatever
// its seed; a table that falls for them takes minutes for what follows.
TEST(NameTable, NamesMadeToCollideDoNotShareASlot) {
  NameTable table;
  constexpr std::size_t kBlocks = 17;
  for (std::uint32_t i = 0; i < 1U << kBlocks; ++i) {
    std::string name(16 * kBlocks, 'a');
    for (std::size_t b = 0; b < kBlocks; ++b) {
      if ((i >> b & 1) == 0) continue;
      name[16 * b + 7] ^= '\x80';
      name[16 * b + 15] ^= '\x80';
      name[16 * b + 11] ^= '\x80';
    }
    ASSERT_EQ(table.intern(name), i);
  }
}

}  // namespace
}  // namespace cairn
