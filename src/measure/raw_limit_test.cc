#include "measure/raw_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "cairn/tensor.h"
#include "storage/descriptor.h"
#include "storage/page_cache.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

TEST(RawLimit, MovesEveryByteThereAndBackAndLeavesNothing) {
  const TestFolder folder;
  constexpr std::uint64_t kBytes = 37 * 4096;  // no multiple of any number of files
  Tensor memory = Tensor::zeros(DType::kUInt8, {kBytes});
  for (std::size_t i = 0; i < kBytes; ++i) memory.bytes()[i] = static_cast<std::byte>(i * 31 >> 3);
  const std::vector<std::byte> before(memory.bytes().begin(), memory.bytes().end());
  std::atomic<std::uint64_t> moved = 0;
  const RawLimit limit =
      raw_limit(folder / "raw", memory.bytes(), {.moved = [&](std::uint64_t n) { moved += n; }});
  EXPECT_GT(limit.write.seconds, 0);
  EXPECT_GT(limit.read.seconds, 0);
  EXPECT_LT(limit.read.seconds, 3600);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.bytes().begin()));
  EXPECT_GE(moved, 2 * 3 * kBytes);  // without a way past the cache there are three ways
  EXPECT_EQ(moved % kBytes, 0U);
  EXPECT_FALSE(std::filesystem::exists(folder / "raw"));
}

TEST(RawLimit, WhatTheCallerThrowsEndsIt) {
  const TestFolder folder;
  Tensor memory = Tensor::zeros(DType::kUInt8, {64 * 4096});
  const auto stop = [](std::uint64_t) { throw Error(ErrorCode::kCancelled, "enough"); };
  const Error e = error_of([&] { raw_limit(folder / "raw", memory.bytes(), {.moved = stop}); });
  EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(folder / "raw"));
}

TEST(PageCache, KnowsWhatItHolds) {
  const TestFolder folder;
  const std::string path = folder.write("file", std::string(1U << 20, 'x'));
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(is_cached(file.get(), 1U << 20));  // just written
  const bool forgotten = forget_cached(folder.path());
  EXPECT_EQ(is_cached(file.get(), 1U << 20), !forgotten);
  EXPECT_FALSE(lives_in_memory(file.get()) && forgotten);
}

}  // namespace
}  // namespace cairn
