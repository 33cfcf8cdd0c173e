#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cairn/state_dict.h"

namespace cairn {
namespace {

Dict numbered(int n) {
  Dict d;
  for (int i = 0; i < n; ++i) d.set("k" + std::to_string(i), i);
  return d;
}

TEST(Dict, KeepsInsertionOrderAndReplacesInPlace) {
  Dict d{{"b", 1}, {"a", 2}};
  d.set("b", 3);
  EXPECT_EQ(d.size(), 2U);
  EXPECT_EQ(d.begin()->first, Key("b"));
  EXPECT_EQ(d.begin()->second, Value(3));
}

TEST(Dict, FindsEveryKeyAroundTheSizeWhereHashingStarts) {
  for (int n : {0, 1, 15, 16, 17, 18, 31, 32, 33, 1000}) {
    Dict d = numbered(n);
    for (int i = 0; i < n; ++i) {
      const Value* v = d.find("k" + std::to_string(i));
      ASSERT_NE(v, nullptr) << i << " of " << n;
      EXPECT_EQ(*v, Value(i));
    }
    EXPECT_EQ(d.find("k" + std::to_string(n)), nullptr);
    EXPECT_EQ(d.find(std::int64_t{0}), nullptr);
    if (n > 0) {
      d.set("k0", "new");
      EXPECT_EQ(d.size(), static_cast<std::size_t>(n));
      EXPECT_EQ(*d.find("k0"), Value("new"));
    }
  }
}

TEST(Dict, NameAndNumberAreDifferentKeys) {
  Dict d;
  for (std::int64_t i = 0; i < 100; ++i) {
    d.set(i, i);
    d.set(std::to_string(i), -i);
  }
  EXPECT_EQ(d.size(), 200U);
  EXPECT_EQ(*d.find(std::int64_t{42}), Value(42));
  EXPECT_EQ(*d.find("42"), Value(-42));
}

TEST(Dict, CopyIsIndependent) {
  Dict a = numbered(40);
  Dict b = a;
  b.set("k7", "changed");
  EXPECT_EQ(*a.find("k7"), Value(7));
  a = b;
  EXPECT_EQ(a, b);
  const Dict& same = a;
  a = same;
  EXPECT_EQ(a, b);
}

TEST(Dict, MovedFromDictIsEmptyAndUsable) {
  Dict a = numbered(3);
  const Dict b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(a.find("k0"), nullptr);
  EXPECT_EQ(a.begin(), a.end());
  a.set("x", 1);
  EXPECT_EQ(a.size(), 1U);
  EXPECT_EQ(b.size(), 3U);
}

TEST(Dict, EqualityLooksAtOrder) {
  EXPECT_EQ((Dict{{"a", 1}, {"b", 2}}), (Dict{{"a", 1}, {"b", 2}}));
  EXPECT_NE((Dict{{"a", 1}, {"b", 2}}), (Dict{{"b", 2}, {"a", 1}}));
  EXPECT_NE((Dict{{"a", 1}}), (Dict{{"a", 1}, {"b", 2}}));
  EXPECT_NE((Dict{{"a", 1}}), (Dict{{"a", 2}}));
  EXPECT_EQ(Dict{}, Dict{});
}

TEST(Dict, LastOfRepeatedKeysInAnInitializerWins) { EXPECT_EQ((Dict{{"a", 1}, {"a", 2}}), (Dict{{"a", 2}})); }

}  // namespace
}  // namespace cairn
