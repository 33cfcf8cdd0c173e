// The small parts of a conversion, each by itself.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "convert/convert_entries.h"
#include "convert/convert_write.h"
#include "format/zstd_sink.h"
#include "reading/joined_sum.h"
#include "reading/transforms.h"
#include "testing/folder.h"

namespace cairn {
namespace {

TEST(JoinedSum, JoinsPartsThatComeInAnyOrder) {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  std::vector<std::size_t> order(10);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    JoinedSum sum;
    for (const std::size_t part : order) {
      EXPECT_FALSE(sum.whole(1000));
      sum.add(part * 100, part * 100 + 100, crc32(std::span(bytes).subspan(part * 100, 100)));
    }
    EXPECT_EQ(sum.whole(1000), crc32(bytes));
  }
}

TEST(JoinedSum, OfPartsThatOverlapIsNeverKnown) {
  JoinedSum sum;
  sum.add(0, 10, 1);
  sum.add(5, 20, 2);
  EXPECT_FALSE(sum.whole(20));
}

// Counts 0, 1, 2, ... through the boxes of a range.
void expect_boxes_follow(const Shape& shape, std::int64_t begin, std::int64_t end) {
  const Shape steps = contiguous_strides(shape);
  std::int64_t next = begin;
  for_each_box(shape, begin, end, [&](const Box& box, std::int64_t first) {
    EXPECT_EQ(first, next);
    std::int64_t start = 0;
    for (std::size_t d = 0; d < shape.rank(); ++d) start += box.offsets[d] * steps[d];
    EXPECT_EQ(start, first);
    EXPECT_TRUE(Box::whole(shape).contains(box));
    // Contiguous: whatever follows the first dimension that is cut is whole.
    std::size_t cut = 0;
    while (cut < shape.rank() && box.sizes[cut] == 1) ++cut;
    for (std::size_t d = cut + 1; d < shape.rank(); ++d) EXPECT_EQ(box.sizes[d], shape[d]);
    next += box.volume();
  });
  EXPECT_EQ(next, end);
}

TEST(ForEachBox, CoversARangeInOrder) {
  for (const Shape& shape : {Shape{3, 4, 5}, Shape{60}, Shape{1, 1, 7}, Shape{4, 1, 3}}) {
    const std::int64_t all = shape.numel();
    for (std::int64_t begin = 0; begin < all; ++begin)
      for (std::int64_t end = begin + 1; end <= all; ++end) expect_boxes_follow(shape, begin, end);
  }
  expect_boxes_follow({}, 0, 1);
}

TEST(RenamedPath, KeepsTheStepsThatAreStillThere) {
  const Path path = {std::string("model"), std::string("layers.0.w")};
  EXPECT_EQ(renamed_path(path, "layers.0.w"), (Path{std::string("layers.0.w")}));
  EXPECT_EQ(renamed_path(path, "net.layers.0.w"), (Path{std::string("net"), std::string("layers.0.w")}));
  EXPECT_EQ(renamed_path(path, "model.h.0.w"), (Path{std::string("model"), std::string("h.0.w")}));
  EXPECT_EQ(renamed_path(path, "x"), (Path{std::string("x")}));
  EXPECT_EQ(renamed_path(path, "ema.model.layers.0.w"),
            (Path{std::string("ema"), std::string("model"), std::string("layers.0.w")}));
}

TEST(RenamedPath, KeepsPositionsInLists) {
  const Path path = {std::string("a"), std::int64_t{3}, std::string("b")};
  EXPECT_EQ(renamed_path(path, "z.3.b"), (Path{std::string("z"), std::int64_t{3}, std::string("b")}));
}

TEST(Transforms, OfALargeItemGoToAFileWithoutAName) {
  if (!zstd_is_built_in()) GTEST_SKIP();
  const TestFolder folder;
  std::string plain(3'000'000, 'x');
  for (std::size_t i = 0; i < plain.size(); i += 7) plain[i] = static_cast<char>(i);
  StringSink packed;
  ZstdSink zstd(packed);
  zstd.append(as_bytes(plain));
  zstd.finish();
  const auto item = memory_source(as_bytes(packed.text));
  for (const std::uint64_t in_memory : {std::uint64_t{1000}, std::uint64_t{1} << 30}) {
    const auto source = undo_transforms_anywhere(*item, {"stream.zstd/1"}, 1 << 30, in_memory, folder.path());
    EXPECT_EQ(read_all(*source), plain);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace cairn
