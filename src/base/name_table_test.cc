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

}  // namespace
}  // namespace cairn
