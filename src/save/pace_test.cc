#include "save/pace.h"

#include <gtest/gtest.h>

#include <thread>

#include "testing/errors.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNever = Clock::time_point::max();

TEST(Pace, HoldsBytesUntilTheirTurn) {
  Pace pace(nullptr, kNever, 10U << 20);
  const Clock::time_point start = Clock::now();
  std::thread other([&] { pace.pass(1U << 20); });
  pace.pass(1U << 20);
  other.join();
  pace.pass(1U << 20);  // the third begins when two are through
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(199));
}

TEST(Pace, WithoutALimitOnlyCancellationCounts) {
  std::atomic<bool> cancelled = false;
  Pace pace(&cancelled, kNever, 0);
  pace.pass(std::uint64_t{1} << 60);
  cancelled = true;
  EXPECT_EQ(error_of([&] { pace.pass(0); }).code(), ErrorCode::kCancelled);
}

TEST(Pace, AfterTheDeadlineNothingPasses) {
  Pace late(nullptr, Clock::now() - std::chrono::milliseconds(1), 0);
  EXPECT_EQ(error_of([&] { late.pass(0); }).code(), ErrorCode::kTimeout);
  Pace slow(nullptr, Clock::now() + std::chrono::milliseconds(50), 1);
  slow.pass(3600);
  EXPECT_EQ(error_of([&] { slow.pass(1); }).code(), ErrorCode::kTimeout);
}

TEST(Pace, ACancelledWaitEnds) {
  std::atomic<bool> cancelled = false;
  Pace pace(&cancelled, kNever, 1);
  pace.pass(3600);  // the next would wait an hour
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancelled = true;
  });
  EXPECT_EQ(error_of([&] { pace.pass(1); }).code(), ErrorCode::kCancelled);
  other.join();
}

TEST(Pace, PiecesAreSmallWhereTheyMustBe) {
  const std::atomic<bool> cancelled = false;
  EXPECT_GT(Pace(nullptr, kNever, 0).piece_bytes(), std::uint64_t{1} << 40);
  EXPECT_LE(Pace(&cancelled, kNever, 0).piece_bytes(), 64U << 20);
  EXPECT_LE(Pace(nullptr, kNever, 1000).piece_bytes(), 1U << 20);
}

}  // namespace
}  // namespace cairn
