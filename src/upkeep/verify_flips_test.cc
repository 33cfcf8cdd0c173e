// One bit, anywhere in any file.
#include <gtest/gtest.h>

#include <random>

#include "testing/verify.h"

namespace cairn {
namespace {

// One bit, anywhere in any file.
TEST(Verify, FindsEveryFlippedBit) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  const Files files = saved(trainer_state(0, 1, 1));
  const std::vector<FileEntry> entries = files->list();
  ASSERT_EQ(entries.size(), 4U);  // metadata, manifest, two data files
  VerifyOptions options;
  options.threads = 1;
  for (int i = 0; i < 300; ++i) {
    const FileEntry& entry = entries[static_cast<std::size_t>(i) % entries.size()];
    const std::size_t bit = random() % (entry.size * 8);
    flip_bit(*files, entry.name, bit);
    EXPECT_FALSE(verify(*files, options).ok()) << entry.name << " bit " << bit << " seed " << seed;
    flip_bit(*files, entry.name, bit);
  }
  EXPECT_TRUE(verify(*files).ok());
}

// Also where the description says which manifest is its own.
TEST(Verify, FindsAFlippedBitInEveryByteOfTheDescription) {
  StateDict state;
  state.set("w", Value(numbered({3}, 1)));
  const Files files = saved(state, one_file());
  VerifyOptions options;
  options.threads = 1;
  for (const std::string& name : {std::string(".metadata"), manifest_in(*files)}) {
    const std::size_t size = files->stat(name)->size;
    for (std::size_t byte = 0; byte < size; ++byte) {
      const std::size_t bit = byte * 8 + byte % 8;
      flip_bit(*files, name, bit);
      EXPECT_FALSE(verify(*files, options).ok()) << name << " bit " << bit;
      flip_bit(*files, name, bit);
    }
  }
}

TEST(Verify, FindsEveryFlippedBitInStrongHashesToo) {
  std::mt19937_64 random(11);
  const Files files = saved(trainer_state(0, 1, 1), one_file(with_strong_hashes));
  for (const FileEntry& entry : files->list()) {
    flip_bit(*files, entry.name, random() % (entry.size * 8));
    EXPECT_FALSE(verify(*files).ok()) << entry.name;
  }
}

TEST(Verify, FindsEveryCutOfTheDescription) {
  const Files files = saved(trainer_state(0, 1, 1));
  for (const std::string& name : {std::string(".metadata"), manifest_in(*files)}) {
    const std::string bytes = get_file(*files, name);
    for (std::size_t size = 0; size < bytes.size(); size += 13) {
      put_file(*files, name, bytes.substr(0, size));
      EXPECT_FALSE(verify(*files).ok()) << name << " " << size;
    }
    put_file(*files, name, bytes);
  }
}

}  // namespace
}  // namespace cairn
