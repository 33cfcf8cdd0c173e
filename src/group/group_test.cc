#include "cairn/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "testing/check_group.h"
#include "testing/errors.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

TEST(Group, TheGroupOfOneKeepsThePromises) { check_group(*solo_group(), 1); }

TEST(Group, ThreadsKeepThePromisesAtEverySize) {
  for (const int size : {1, 2, 3, 4, 7, 8}) run_ranks(size, [](Group& group) { check_group(group, 1); });
}

TEST(Group, NobodyWaitsPastTheDeadlineForARankThatIsSilent) {
  auto groups = thread_groups(2);
  const auto start = std::chrono::steady_clock::now();
  const Error e = error_of([&] { groups[0]->gather("x", 0, {1, Step::in(50ms)}); });
  EXPECT_EQ(e.code(), ErrorCode::kTimeout);
  EXPECT_EQ(e.rank(), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
}

TEST(Group, ARankThatLeavesIsNamedAtOnce) {
  auto groups = thread_groups(3);
  groups[2].reset();
  std::thread one([&] { groups[1]->gather("x", 0, {1, Step::in(60s)}); });
  const Error e = error_of([&] { groups[0]->gather("x", 0, {1, Step::in(60s)}); });
  one.join();
  EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  EXPECT_EQ(e.rank(), 2);
}

TEST(Group, WhatOthersSentIsTakenAlsoWhenARankHasLeft) {
  auto groups = thread_groups(3);
  const Step step{1, Step::in(60s)};
  groups[1].reset();
  groups[2]->gather("x", 0, step);
  EXPECT_EQ(error_of([&] { groups[0]->gather("x", 0, step); }).rank(), 1);
  EXPECT_EQ(groups[0]->peek(2, step), std::nullopt);
}

TEST(Group, ASilentRankKeepsNobodyWaitingOnceAnotherHasLeft) {
  auto groups = thread_groups(3);
  groups[1].reset();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of([&] { groups[0]->gather("x", 0, {1, Step::in(60s)}); }).rank(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST(Group, WhatARankSentBeforeItLeftStillArrives) {
  auto groups = thread_groups(2);
  groups[1]->gather("last words", 0, {1, Step::in(60s)});
  groups[1].reset();
  EXPECT_EQ(groups[0]->gather("x", 0, {1, Step::in(60s)})[1], "last words");
}

TEST(Group, AMessageOfAnAbandonedStepIsDropped) {
  auto groups = thread_groups(2);
  EXPECT_EQ(error_of([&] { groups[0]->gather("x", 0, {1, Step::in(1ms)}); }).code(), ErrorCode::kTimeout);
  groups[1]->gather("too late", 0, {1, Step::in(60s)});
  groups[1]->gather("in time", 0, {2, Step::in(60s)});
  EXPECT_EQ(groups[0]->gather("x", 0, {2, Step::in(60s)})[1], "in time");
}

TEST(Group, WhatHasComeCanBeSeenBeforeItIsTaken) {
  auto groups = thread_groups(2);
  ASSERT_TRUE(groups[0]->looks_ahead());
  const Step step{2, Step::in(60s)};
  EXPECT_EQ(groups[0]->peek(1, step), std::nullopt);
  groups[1]->gather("of an older step", 0, {1, Step::in(60s)});
  EXPECT_EQ(groups[0]->peek(1, step), std::nullopt);
  groups[1]->gather("mine", 0, step);
  EXPECT_EQ(groups[0]->peek(1, step), 'm');
  EXPECT_EQ(groups[0]->gather("x", 0, step)[1], "mine");
  groups[1].reset();
  EXPECT_EQ(error_of([&] { groups[0]->peek(1, step); }).code(), ErrorCode::kCancelled);
}

TEST(Group, AHintIsSeenAndNeverTaken) {
  auto groups = thread_groups(2);
  groups[0]->hint(1, '!', {1, Step::in(60s)});
  EXPECT_EQ(groups[1]->peek(0, {1, Step::in(60s)}), '!');
  groups[0]->scatter({"a", "b"}, 0, {2, Step::in(60s)});
  EXPECT_EQ(groups[1]->scatter({}, 0, {2, Step::in(60s)}), "b");
}

TEST(Group, ARankThatComesTooLateLearnsIt) {
  auto groups = thread_groups(2);
  groups[1]->gather("x", 0, {2, Step::in(60s)});
  const Error e = error_of([&] { groups[0]->gather("x", 0, {1, Step::in(60s)}); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
}

TEST(Group, WhoGetsABroadcastFromNobodySaysAtOnceWhoIsMissing) {
  auto groups = thread_groups(4);
  groups[0].reset();
  const Step step{1, Step::in(60s)};
  EXPECT_EQ(error_of([&] { groups[2]->broadcast("", 0, step); }).rank(), 0);
  const Error e = error_of([&] { groups[3]->broadcast("", 0, step); });  // rank 2 lives, and is above it
  EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  EXPECT_EQ(e.rank(), 0);
}

TEST(Group, WhatCannotBeIsRefused) {
  auto groups = thread_groups(2);
  EXPECT_EQ(error_of([&] { groups[0]->gather("", 2, {}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { groups[0]->broadcast("", -1, {}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { groups[0]->scatter({"only one"}, 0, {}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { thread_groups(0); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Group, WhatARankThrowsReachesTheCallerOfRunRanks) {
  std::atomic<int> others = 0;
  const Error e = error_of([&] {
    run_ranks(3, [&](Group& group) {
      if (group.rank() == 1) throw Error(ErrorCode::kIo, "no");
      try {
        group.barrier({1, Step::in(60s)});
      } catch (const Error&) {
        ++others;
        if (group.rank() == 0) return;
        throw;
      }
    });
  });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(others, 2);
}

}  // namespace
}  // namespace cairn
