#include "storage/pace.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/test_errors.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Pace, HoldsBytesUntilTheirTurn) {
  Pace pace(nullptr, 10U << 20);
  const Clock::time_point start = Clock::now();
  std::thread other([&] { pace.pass(1U << 20); });
  pace.pass(1U << 20);
  other.join();
  pace.pass(1U << 20);  // the third begins when two are through
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(199));
}

TEST(Pace, WithoutALimitOnlyCancellationCounts) {
  std::atomic<bool> cancelled = false;
  Pace pace(&cancelled, 0);
  pace.pass(std::uint64_t{1} << 60);
  cancelled = true;
  EXPECT_EQ(error_of([&] { pace.pass(0); }).code(), ErrorCode::kCancelled);
}

TEST(Pace, ACancelledWaitEnds) {
  std::atomic<bool> cancelled = false;
  Pace pace(&cancelled, 1);
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
  EXPECT_GT(Pace(nullptr, 0).piece_bytes(), std::uint64_t{1} << 40);
  EXPECT_LE(Pace(&cancelled, 0).piece_bytes(), 64U << 20);
  EXPECT_LE(Pace(nullptr, 1000).piece_bytes(), 1U << 20);
}

}  // namespace
}  // namespace cairn
