#include "reading/block_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::uint64_t kBlock = 4096;

// What a thread is told that wants a tensor out of a block which cannot be read.
std::string failure_of(BlockCache& cache, const std::string& tensor, const BlockCache::Load& load) {
  try {
    cache.get({0, 0}, load);
  } catch (Error& e) {
    return e.of_tensor(tensor).what();
  }
  return "";
}

TEST(BlockCache, ReadsABlockOnce) {
  BlockCache cache(kBlock, 4 * kBlock);
  int reads = 0;
  const auto load = [&](std::span<std::byte> to) {
    ++reads;
    to[0] = std::byte{7};
  };
  EXPECT_EQ(cache.get({0, 3}, load)->bytes()[0], std::byte{7});
  EXPECT_EQ(cache.get({0, 3}, load)->bytes()[0], std::byte{7});
  EXPECT_EQ(reads, 1);
}

TEST(BlockCache, ABlockThatCouldNotBeReadIsTriedAgain) {
  BlockCache cache(kBlock, 4 * kBlock);
  EXPECT_THROW(cache.get({0, 0}, [](auto) { throw Error(ErrorCode::kIo, "no"); }), Error);
  EXPECT_NE(cache.get({0, 0}, [](auto) {}), nullptr);
}

TEST(BlockCache, EveryThreadThatWaitedNamesItsOwnTensor) {
  int shared = 0;
  for (int round = 0; round < 1000 && shared < 10; ++round) {
    BlockCache cache(kBlock, 4 * kBlock);
    std::atomic<int> here = 0, reads = 0;
    const auto load = [&](std::span<std::byte>) {
      ++reads;
      while (here < 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw Error(ErrorCode::kIo, "the disk is gone");
    };
    const std::array<std::string, 2> tensors = {"first", "second"};
    std::array<std::string, 2> said;
    {
      std::array<std::jthread, 2> threads;
      for (std::size_t i = 0; i < 2; ++i) {
        threads[i] = std::jthread([&, i] {
          ++here;
          said[i] = failure_of(cache, tensors[i], load);
        });
      }
    }
    EXPECT_EQ(said[0], "tensor 'first': the disk is gone (io)");
    EXPECT_EQ(said[1], "tensor 'second': the disk is gone (io)");
    if (reads == 1) ++shared;
  }
  EXPECT_GT(shared, 0) << "the threads never met";
}

}  // namespace
}  // namespace cairn
