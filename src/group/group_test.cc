#include "cairn/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "testing/check_group.h"
#include "testing/errors.h"
#include "testing/tcp_groups.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

struct GroupKind {
  const char* name;
  std::vector<std::unique_ptr<Group>> (*make)(int size);
};

class Groups : public testing::TestWithParam<GroupKind> {
 protected:
  static std::vector<std::unique_ptr<Group>> groups_of(int size) { return GetParam().make(size); }
};

INSTANTIATE_TEST_SUITE_P(Over, Groups,
                         testing::Values(GroupKind{"threads", thread_groups}, GroupKind{"tcp", tcp_groups}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// What can be seen ahead, when it has had time to come.
std::optional<char> seen_soon(Group& group, int from, const Step& step) {
  for (const auto until = Step::in(60s); std::chrono::steady_clock::now() < until;
       std::this_thread::sleep_for(1ms))
    if (const auto seen = group.peek(from, step)) return seen;
  return std::nullopt;
}

TEST(Group, TheGroupOfOneKeepsThePromises) { check_group(*solo_group(), 1); }

TEST_P(Groups, KeepThePromisesAtEverySize) {
  for (int size = 1; size <= 8; ++size) {
    std::vector<std::unique_ptr<Group>> groups = groups_of(size);
    std::vector<std::thread> ranks;
    for (const std::unique_ptr<Group>& group : groups) {
      ranks.emplace_back([&group] {
        try {
          check_group(*group, 1);
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST_P(Groups, NobodyWaitsPastTheDeadlineForARankThatIsSilent) {
  auto groups = groups_of(2);
  const auto start = std::chrono::steady_clock::now();
  const Error e = error_of([&] { groups[0]->gather("x", 0, {1, Step::in(50ms)}); });
  EXPECT_EQ(e.code(), ErrorCode::kTimeout);
  EXPECT_EQ(e.rank(), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
}

TEST_P(Groups, ARankThatLeavesIsNamedAtOnce) {
  auto groups = groups_of(3);
  groups[2].reset();
  std::thread one([&] { groups[1]->gather("x", 0, {1, Step::in(60s)}); });
  const Error e = error_of([&] { groups[0]->gather("x", 0, {1, Step::in(60s)}); });
  one.join();
  EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  EXPECT_EQ(e.rank(), 2);
}

TEST_P(Groups, WhatOthersSentIsTakenAlsoWhenARankHasLeft) {
  auto groups = groups_of(3);
  const Step step{1, Step::in(60s)};
  groups[1].reset();
  groups[2]->gather("x", 0, step);
  EXPECT_EQ(seen_soon(*groups[0], 2, step), 'x');
  EXPECT_EQ(error_of([&] { groups[0]->gather("x", 0, step); }).rank(), 1);
  EXPECT_EQ(groups[0]->peek(2, step), std::nullopt);
}

TEST_P(Groups, ASilentRankKeepsNobodyWaitingOnceAnotherHasLeft) {
  auto groups = groups_of(3);
  groups[1].reset();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of([&] { groups[0]->gather("x", 0, {1, Step::in(60s)}); }).rank(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST_P(Groups, WhatARankSentBeforeItLeftStillArrives) {
  auto groups = groups_of(2);
  groups[1]->gather("last words", 0, {1, Step::in(60s)});
  groups[1].reset();
  EXPECT_EQ(groups[0]->gather("x", 0, {1, Step::in(60s)})[1], "last words");
}

TEST_P(Groups, AMessageOfAnAbandonedStepIsDropped) {
  auto groups = groups_of(2);
  EXPECT_EQ(error_of([&] { groups[0]->gather("x", 0, {1, Step::in(1ms)}); }).code(), ErrorCode::kTimeout);
  groups[1]->gather("too late", 0, {1, Step::in(60s)});
  groups[1]->gather("in time", 0, {2, Step::in(60s)});
  EXPECT_EQ(groups[0]->gather("x", 0, {2, Step::in(60s)})[1], "in time");
}

TEST_P(Groups, WhatHasComeCanBeSeenBeforeItIsTaken) {
  auto groups = groups_of(2);
  ASSERT_TRUE(groups[0]->looks_ahead());
  const Step step{2, Step::in(60s)};
  EXPECT_EQ(groups[0]->peek(1, step), std::nullopt);
  groups[1]->gather("of an older step", 0, {1, Step::in(60s)});
  EXPECT_EQ(groups[0]->peek(1, step), std::nullopt);
  groups[1]->gather("mine", 0, step);
  EXPECT_EQ(seen_soon(*groups[0], 1, step), 'm');
  EXPECT_EQ(groups[0]->gather("x", 0, step)[1], "mine");
  groups[1].reset();
  EXPECT_EQ(error_of([&] { seen_soon(*groups[0], 1, step); }).code(), ErrorCode::kCancelled);
}

TEST_P(Groups, AHintIsSeenAndNeverTaken) {
  auto groups = groups_of(2);
  groups[0]->hint(1, '!', {1, Step::in(60s)});
  EXPECT_EQ(seen_soon(*groups[1], 0, {1, Step::in(60s)}), '!');
  groups[0]->scatter({"a", "b"}, 0, {2, Step::in(60s)});
  EXPECT_EQ(groups[1]->scatter({}, 0, {2, Step::in(60s)}), "b");
}

TEST_P(Groups, ARankThatComesTooLateLearnsIt) {
  auto groups = groups_of(2);
  groups[1]->gather("x", 0, {2, Step::in(60s)});
  const Error e = error_of([&] { groups[0]->gather("x", 0, {1, Step::in(60s)}); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
}

TEST_P(Groups, WhoGetsABroadcastFromNobodySaysAtOnceWhoIsMissing) {
  auto groups = groups_of(4);
  groups[0].reset();
  const Step step{1, Step::in(60s)};
  EXPECT_EQ(error_of([&] { groups[2]->broadcast("", 0, step); }).rank(), 0);
  const Error e = error_of([&] { groups[3]->broadcast("", 0, step); });  // rank 2 lives, and is above it
  EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  EXPECT_EQ(e.rank(), 0);
}

TEST_P(Groups, RefuseWhatCannotBe) {
  auto groups = groups_of(2);
  EXPECT_EQ(error_of([&] { groups[0]->gather("", 2, {}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { groups[0]->broadcast("", -1, {}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { groups[0]->scatter({"only one"}, 0, {}); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Group, HasARank) {
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
