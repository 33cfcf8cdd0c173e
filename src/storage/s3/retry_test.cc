// Delays, places among the requests under way, and second tries, as threads share them.
#include "storage/s3/retry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace cairn::s3 {
namespace {

using namespace std::chrono_literals;
using Clock = Pace::Clock;

TEST(S3Retry, DelaysDoubleUpToTheMostAndAreAnythingBelow) {
  auto longest = 0ms;
  auto shortest = 1000ms;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LE(delay_of_retry(0, 10ms, 100ms), 10ms);
    EXPECT_LE(delay_of_retry(60, 10ms, 100ms), 100ms);
    const auto delay = delay_of_retry(2, 10ms, 100ms);
    longest = std::max(longest, delay);
    shortest = std::min(shortest, delay);
  }
  EXPECT_LE(longest, 40ms);
  EXPECT_GT(longest, 30ms);
  EXPECT_LT(shortest, 10ms);
}

TEST(S3Retry, ThereAreAsManyPlacesAsWereAskedForAndOneThatIsLeftIsTaken) {
  Pace pace(2);
  EXPECT_TRUE(pace.enter(Clock::now()));
  EXPECT_TRUE(pace.enter(Clock::now()));
  EXPECT_FALSE(pace.enter(Clock::now() + 1ms));
  std::thread waits([&] { EXPECT_TRUE(pace.enter(Clock::now() + 1min)); });
  pace.leave();
  waits.join();
  EXPECT_FALSE(pace.enter(Clock::now()));
}

TEST(S3Retry, AWaveOfWishesForFewerHalvesThePlacesOnceAndGoodAnswersBringThemBack) {
  Pace pace(8);
  const auto sent = Clock::now();
  for (int i = 0; i < 8; ++i) pace.slowed_down(sent, 10ms);
  EXPECT_EQ(pace.places(), 4);
  EXPECT_GT(pace.not_before(), sent);
  pace.slowed_down(Clock::now(), 1h);
  EXPECT_EQ(pace.places(), 2);
  EXPECT_GT(pace.not_before(), sent + 59min);
  pace.went_well();
  EXPECT_EQ(pace.places(), 2);
  pace.went_well();
  EXPECT_EQ(pace.places(), 3);
  for (int i = 0; i < 100; ++i) pace.went_well();
  EXPECT_EQ(pace.places(), 8);
  for (int i = 0; i < 10; ++i) pace.slowed_down(Clock::now(), 0ms);
  EXPECT_EQ(pace.places(), 1);
}

TEST(S3Retry, BeyondTheFirstHundredEveryFifthRequestMayBeSentAgain) {
  Pace pace(1);
  const auto taken = [&] {
    int count = 0;
    while (pace.take_retry()) ++count;
    return count;
  };
  EXPECT_EQ(taken(), 100);
  for (int i = 0; i < 51; ++i) pace.sent_one();
  EXPECT_EQ(taken(), 10);
}

TEST(S3Retry, WhatReadsUsuallyTakeIsTheMedianOfThoseOfThatSizeOfLate) {
  Pace pace(1);
  for (int i = 0; i < 7; ++i) pace.took(1 << 20, 10ms);
  EXPECT_EQ(pace.usual(1 << 20), std::nullopt);
  pace.took(1 << 20, 10h);
  EXPECT_EQ(pace.usual((1 << 20) + 5), Clock::duration(10ms));
  EXPECT_EQ(pace.usual(1 << 24), std::nullopt);
  for (int i = 0; i < 32; ++i) pace.took(1 << 20, 20ms);
  EXPECT_EQ(pace.usual(1 << 20), Clock::duration(20ms));
}

TEST(S3Retry, SecondTriesAreFewAndTakePlacesAndWaitLikeOthers) {
  Pace pace(4);
  EXPECT_TRUE(pace.enter_hedge());
  EXPECT_TRUE(pace.enter_hedge());
  EXPECT_FALSE(pace.enter_hedge());
  EXPECT_TRUE(pace.enter(Clock::now()));
  EXPECT_TRUE(pace.enter(Clock::now()));
  EXPECT_FALSE(pace.enter(Clock::now()));
  pace.leave_hedge();
  EXPECT_TRUE(pace.enter(Clock::now()));
  EXPECT_FALSE(pace.enter_hedge());  // no room
  pace.leave();
  pace.slowed_down(Clock::now() - 1h, 1h);
  pace.leave_hedge();
  EXPECT_FALSE(pace.enter_hedge());  // nobody may send
}

}  // namespace
}  // namespace cairn::s3
