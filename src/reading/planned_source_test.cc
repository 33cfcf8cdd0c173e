// Blocks of files that are read once for all who want a part of them.
#include "reading/planned_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "testing/errors.h"

namespace cairn {
namespace {

// A file in memory that counts how often it is read.
class BlockSource final : public ByteSource {
 public:
  explicit BlockSource(std::uint64_t size) : bytes_(size) {
    for (std::uint64_t i = 0; i < size; ++i) bytes_[i] = static_cast<std::byte>(i * 31 >> 8);
  }
  std::uint64_t size() const override { return bytes_.size(); }
  const std::string& name() const override { return name_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    ++reads;
    std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }
  ByteSpan all() const { return bytes_; }

  mutable std::atomic<int> reads = 0;

 private:
  std::vector<std::byte> bytes_;
  std::string name_ = "a file";
};

class PlannedBlocks : public testing::Test {
 protected:
  // What `count` readings of 100 bytes at this distance cost.
  int reads_of(std::uint64_t distance, int count, BlockCache& cache) {
    const PlannedSource planned(file_, plan_, cache, tally_);
    for (int i = 0; i < count; ++i) {
      std::vector<std::byte> bytes(100);
      const std::uint64_t offset = distance * static_cast<std::uint64_t>(i) + 50;
      planned.read_at(offset, bytes);
      EXPECT_TRUE(std::ranges::equal(bytes, file_->all().subspan(offset, 100))) << offset;
    }
    return file_->reads.exchange(0);
  }

  static constexpr std::uint64_t kBlocks = 10;
  std::shared_ptr<BlockSource> file_ = std::make_shared<BlockSource>((kBlocks - 1) * kManifestBlock + 5000);
  ReadTally tally_;
  std::vector<std::uint32_t> crcs_;
  PlannedFile plan_{.whole_blocks = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
};

TEST_F(PlannedBlocks, AreReadOneByOneIntoACacheOfSingleBlocks) {
  BlockCache cache(kManifestBlock, 16 * kManifestBlock);
  EXPECT_EQ(reads_of(kManifestBlock / 4, 36, cache), 9);
  EXPECT_EQ(reads_of(kManifestBlock / 4, 36, cache), 0);
}

TEST_F(PlannedBlocks, AreReadTogetherIntoACacheOfLargerOnes) {
  BlockCache cache(4 * kManifestBlock, 16 * kManifestBlock);
  EXPECT_EQ(reads_of(kManifestBlock / 4, 36, cache), 3);
  EXPECT_EQ(reads_of(kManifestBlock, 10, cache), 0);  // the last one is short
}

TEST_F(PlannedBlocks, AreNotReadWhereNobodyWantsThem) {
  plan_.whole_blocks = {1, 2, 4, 7, 8, 9};
  BlockCache cache(4 * kManifestBlock, 16 * kManifestBlock);
  // Two, one, one, two; and what lies in none of these blocks, by itself.
  EXPECT_EQ(reads_of(kManifestBlock, 10, cache), 4 + 4);
  EXPECT_EQ(tally_.read, 5 * kManifestBlock + 5000 + 4 * 100);
}

TEST_F(PlannedBlocks, OfWhichOneIsDamagedAreRefusedAtItsPlace) {
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    const std::uint64_t length = std::min(kManifestBlock, file_->size() - block * kManifestBlock);
    crcs_.push_back(crc32(file_->all().subspan(block * kManifestBlock, length)));
  }
  plan_.crcs = &crcs_;
  BlockCache cache(4 * kManifestBlock, 16 * kManifestBlock);
  EXPECT_EQ(reads_of(kManifestBlock / 4, 36, cache), 3);
  EXPECT_EQ(tally_.verified, file_->size());
  crcs_[6] ^= 1;
  BlockCache again(4 * kManifestBlock, 16 * kManifestBlock);
  const PlannedSource planned(file_, plan_, again, tally_);
  std::vector<std::byte> bytes(100);
  const Error error = error_of([&] { planned.read_at(5 * kManifestBlock + 3, bytes); });
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error.offset(), 6 * kManifestBlock);
}

}  // namespace
}  // namespace cairn
