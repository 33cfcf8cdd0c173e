#include "base/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>

namespace cairn {
namespace {

TEST(Crew, IsJoinedWhenSomethingIsThrown) {
  std::atomic<int> done = 0;
  const auto work = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++done;
  };
  EXPECT_THROW(
      {
        Crew crew;
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(crew.add(work));
        throw std::runtime_error("x");
      },
      std::runtime_error);
  EXPECT_EQ(done, 3);
}

// Work whose copy to the thread finds no memory.
struct Heavy {
  Heavy() = default;
  Heavy(const Heavy&) = default;
  Heavy& operator=(const Heavy&) = default;
  Heavy(Heavy&&) noexcept(false) { throw std::bad_alloc(); }
  Heavy& operator=(Heavy&&) = default;
  ~Heavy() = default;
  void operator()() const {}
};

TEST(Crew, SaysWhenThereIsNoThreadToBeHadAndKeepsTheOthers) {
  std::atomic<int> done = 0;
  Crew crew;
  EXPECT_TRUE(crew.add([&] { ++done; }));
  EXPECT_FALSE(crew.add(Heavy()));
  crew.join();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace cairn
