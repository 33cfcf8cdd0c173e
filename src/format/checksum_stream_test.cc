#include <gtest/gtest.h>

#include <random>

#include "base/hash.h"
#include "cairn/error.h"
#include "format/manifest.h"

namespace cairn {
namespace checksum_stream_test {

std::string random_bytes(std::mt19937& random, std::size_t n) {
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

bool have_strong_hash() {
  try {
    xxh3_128({});
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ChecksumStream, SumsBlocksAndItemsAsIfEachWereSummedAlone) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const bool strong = have_strong_hash();
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    const std::uint64_t block = 1ULL << (random() % 8);
    const std::string bytes = random_bytes(random, random() % 600);
    ChecksumStream stream(strong, block);
    std::vector<ManifestItem> items;
    bool inside = false;
    for (std::size_t at = 0; at < bytes.size();) {
      if (!inside && random() % 2 == 0) {
        stream.begin_item();
        items.push_back({at, 0, 0});
        inside = true;
      }
      const std::size_t n = std::min<std::size_t>(bytes.size() - at, random() % 300);
      stream.append(as_bytes(std::string_view(bytes).substr(at, n)));
      at += n;
      EXPECT_EQ(stream.position(), at);
      if (inside && (random() % 2 == 0 || at == bytes.size())) {
        items.back().length = at - items.back().offset;
        items.back().crc =
            crc32(as_bytes(std::string_view(bytes).substr(items.back().offset, items.back().length)));
        EXPECT_EQ(stream.end_item(), items.back().crc);
        inside = false;
      }
    }
    const ManifestFile file = stream.finish("f");
    EXPECT_EQ(file.name, "f");
    EXPECT_EQ(file.size, bytes.size());
    EXPECT_EQ(file.items, items);
    ManifestFile expected;
    for (std::size_t at = 0; at < bytes.size(); at += block) {
      const ByteSpan one = as_bytes(std::string_view(bytes).substr(at, block));
      expected.block_crcs.push_back(crc32(one));
      if (strong) expected.block_hashes.push_back(xxh3_128(one));
    }
    EXPECT_EQ(file.block_crcs, expected.block_crcs);
    EXPECT_EQ(file.block_hashes, expected.block_hashes);
  }
}

TEST(ChecksumStream, OfNothingHasNoBlocks) {
  ChecksumStream stream;
  stream.begin_item();
  EXPECT_EQ(stream.end_item(), 0U);
  const ManifestFile file = stream.finish("empty");
  EXPECT_EQ(file.size, 0U);
  EXPECT_TRUE(file.block_crcs.empty());
  EXPECT_EQ(file.items, (std::vector<ManifestItem>{{0, 0, 0}}));
}

TEST(ChecksumStream, FitsTheManifest) {
  ChecksumStream stream(false, 16);
  stream.begin_item();
  stream.append(as_bytes("0123456789"));
  stream.end_item();
  stream.append(as_bytes("padding"));
  stream.begin_item();
  stream.append(as_bytes("abc"));
  stream.end_item();
  StringSink sink;
  ManifestWriter writer(sink, SaveId{}, false, 16);
  const ManifestFile file = stream.finish("f");
  writer.add(file);
  writer.finish();
  EXPECT_EQ(read_manifest(*memory_source(as_bytes(sink.text))).files[0], file);
}

TEST(ChecksumStream, RefusesMisuse) {
  EXPECT_THROW(ChecksumStream(false, 3), Error);
  EXPECT_THROW(ChecksumStream(false, 0), Error);
  ChecksumStream stream;
  EXPECT_THROW(stream.end_item(), Error);
  stream.begin_item();
  EXPECT_THROW(stream.begin_item(), Error);
  EXPECT_THROW(stream.finish("f"), Error);
}

}  // namespace checksum_stream_test
}  // namespace cairn
