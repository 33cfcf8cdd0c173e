#include "reading/transforms.h"

#include "testing/errors.h"

#ifdef CAIRN_HAVE_ZSTD
#include <sys/resource.h>
#include <zstd.h>
#endif

namespace cairn {
namespace {

std::string undo(std::string_view bytes, const std::vector<std::string>& transforms,
                 std::uint64_t most = 1 << 20) {
  return read_all(*undo_transforms(memory_source(as_bytes(bytes)), transforms, most));
}

TEST(UndoTransforms, LeavesAnItemWithoutAnyAsItIs) { EXPECT_EQ(undo("abc", {}), "abc"); }

TEST(UndoTransforms, NamesOneItDoesNotKnow) {
  const Error e = error_of([] { undo("abc", {"rot13/1"}); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(e, "rot13/1"));
}

#ifdef CAIRN_HAVE_ZSTD

std::string zstd(std::string_view bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  return packed;
}

TEST(UndoTransforms, UnpacksZstd) {
  EXPECT_EQ(undo(zstd("hello"), {"stream.zstd/1"}), "hello");
  EXPECT_EQ(undo(zstd(""), {"stream.zstd/1"}), "");
  EXPECT_EQ(undo(zstd("one ") + zstd("two"), {"stream.zstd/1"}), "one two");
}

TEST(UndoTransforms, UnpacksWhatFillsItsBuffersExactly) {
  for (const std::size_t size :
       {ZSTD_DStreamOutSize(), 2 * ZSTD_DStreamOutSize(), ZSTD_DStreamOutSize() + 1}) {
    const std::string bytes(size, 'x');
    EXPECT_EQ(undo(zstd(bytes), {"stream.zstd/1"}), bytes) << size;
  }
}

TEST(UndoTransforms, UndoesSeveralInTheOrderGiven) {
  EXPECT_EQ(undo(zstd(zstd("twice")), {"stream.zstd/1", "stream.zstd/1"}), "twice");
}

TEST(UndoTransforms, StopsAtTheBound) {
  const std::string packed = zstd(std::string(100'000, 'x'));
  EXPECT_EQ(undo(packed, {"stream.zstd/1"}, 100'000).size(), 100'000u);
  EXPECT_EQ(error_of([&] { undo(packed, {"stream.zstd/1"}, 99'999); }).code(), ErrorCode::kLimit);
}

std::uint64_t largest_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
}

// A few hundred kilobytes that give six gigabytes.
TEST(UndoTransforms, ABombTakesNoMemory) {
  const std::string frame = zstd(std::string(64 << 20, '\0'));
  EXPECT_EQ(undo(frame, {"stream.zstd/1"}, 1 << 30).size(), 64U << 20);
  std::string bomb;
  for (int i = 0; i < 96; ++i) bomb += frame;
  const std::uint64_t before = largest_memory();
  EXPECT_EQ(error_of([&] { undo(bomb, {"stream.zstd/1"}, 1 << 30); }).code(), ErrorCode::kLimit);
  EXPECT_LT(largest_memory() - before, 256U << 20);
}

TEST(UndoTransforms, RefusesABrokenOrShortStream) {
  EXPECT_EQ(error_of([] { undo("no frame at all", {"stream.zstd/1"}); }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error_of([] { undo("", {"stream.zstd/1"}); }).code(), ErrorCode::kCorrupt);
  const std::string packed = zstd("hello");
  EXPECT_EQ(error_of([&] { undo(packed.substr(0, packed.size() - 1), {"stream.zstd/1"}); }).code(),
            ErrorCode::kCorrupt);
}

#endif

}  // namespace
}  // namespace cairn
