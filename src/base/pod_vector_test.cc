#include "base/pod_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace cairn {
namespace {

PodVector<int> counted(int n) {
  PodVector<int> v;
  for (int i = 0; i < n; ++i) v.push_back(i);
  return v;
}

TEST(PodVector, StartsEmptyWithoutMemory) {
  const PodVector<int> v;
  EXPECT_TRUE(v.empty());
  EXPECT_EQ(v.data(), nullptr);
  EXPECT_TRUE(v.span().empty());
}

TEST(PodVector, KeepsItsElementsWhileItGrows) {
  const PodVector<int> v = counted(100'000);
  ASSERT_EQ(v.size(), 100'000U);
  int expected = 0;
  for (const int x : v) ASSERT_EQ(x, expected++);
  EXPECT_EQ(v.back(), 99'999);
}

TEST(PodVector, CopiesAreIndependent) {
  PodVector<int> a = counted(3);
  PodVector<int> b = a;
  b[0] = 7;
  EXPECT_EQ(a[0], 0);
  a = b;
  EXPECT_EQ(a[0], 7);
  b[0] = 8;
  EXPECT_EQ(a[0], 7);
}

TEST(PodVector, MoveTakesTheMemory) {
  PodVector<int> a = counted(3);
  const int* place = a.data();
  const PodVector<int> b = std::move(a);
  EXPECT_EQ(b.data(), place);
  EXPECT_EQ(b.size(), 3U);
}

TEST(PodVector, ResizeFillsAndTruncateDrops) {
  PodVector<int> v = counted(2);
  v.resize(5, 9);
  EXPECT_EQ(std::vector<int>(v.begin(), v.end()), (std::vector<int>{0, 1, 9, 9, 9}));
  v.truncate(3);
  v.pop_back();
  EXPECT_EQ(v.size(), 2U);
  v.clear();
  EXPECT_TRUE(v.empty());
}

TEST(PodVector, AppendAndExtendAddAtTheEnd) {
  PodVector<std::int64_t> v;
  const std::vector<std::int64_t> three{1, 2, 3};
  v.append(three);
  v.append({});
  std::int64_t* more = v.extend(2);
  more[0] = 4;
  more[1] = 5;
  EXPECT_EQ(std::vector<std::int64_t>(v.begin(), v.end()), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

TEST(PodVector, ReserveLeavesTheSizeAlone) {
  PodVector<int> v = counted(2);
  v.reserve(1000);
  const int* place = v.data();
  for (int i = 2; i < 1000; ++i) v.push_back(i);
  EXPECT_EQ(v.data(), place);
  EXPECT_EQ(v.size(), 1000U);
}

TEST(PodVector, ImpossibleSizeIsBadAlloc) {
  PodVector<std::int64_t> v;
  EXPECT_THROW(v.reserve(static_cast<std::size_t>(-1) / 8), std::bad_alloc);
  EXPECT_TRUE(v.empty());
}

}  // namespace
}  // namespace cairn
