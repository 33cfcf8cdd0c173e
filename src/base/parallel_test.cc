#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace cairn {
namespace {

TEST(ShareWork, TellsTheFailureThatStoppedTheOthers) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> stopped = false;
    const auto work = [&](int thread) {
      if (thread == 0) throw std::runtime_error("the reason");
      while (!stopped) std::this_thread::yield();
      throw std::runtime_error("a consequence");
    };
    try {
      share_work(4, work, [&] { stopped = true; });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "the reason");
    }
  }
}

TEST(ForEachInParallel, BeginsNothingAfterAFailure) {
  std::atomic<int> begun = 0, stops = 0;
  const auto work = [&](std::size_t i, int) {
    ++begun;
    if (i == 3) throw std::runtime_error("no more");
  };
  EXPECT_THROW(for_each_in_parallel(1000000, 2, work, [&] { ++stops; }), std::runtime_error);
  EXPECT_LT(begun, 1000000);
  EXPECT_EQ(stops, 1);
}

}  // namespace
}  // namespace cairn
