// One bit flips somewhere in a checkpoint: verify finds it, and so does a load that verifies.
#include <gtest/gtest.h>

#include <random>

#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/verify.h"
#include "testing/errors.h"
#include "testing/states.h"

namespace cairn {
namespace {

constexpr int kFlips = 2000;

std::shared_ptr<FileSystem> saved(const WriteOptions& options) {
  const std::shared_ptr<FileSystem> files = memory_file_system();
  run_ranks(2, [&](Group& group) {
    const auto writer = dcp_writer(files, options);
    save(trainer_state(group.rank(), 2, 1), "memory", {.group = &group, .writer = writer.get()});
  });
  return files;
}

void replace(FileSystem& files, const std::string& name, std::string_view bytes) {
  const auto file = files.create(name, {.replace = true});
  file->write_at(0, as_bytes(bytes));
  file->commit();
}

void load_all(const std::shared_ptr<FileSystem>& files) {
  const auto reader = dcp_reader(files, {.verify = Verify::kFull});
  load_into_new("memory", std::nullopt, {.reader = reader.get()});
}

// Flips `count` bits, one at a time, as many in each file.
void flip(const std::shared_ptr<FileSystem>& files, int count, unsigned seed) {
  std::mt19937_64 random(seed);
  const std::vector<FileEntry> all = files->list();
  ASSERT_TRUE(verify(*files).ok());
  ASSERT_NO_THROW(load_all(files));
  for (int i = 0; i < count; ++i) {
    const std::string& name = all[static_cast<std::size_t>(i) % all.size()].name;
    const std::string good = read_all(*files->open(name));
    std::string bad = good;
    const std::uint64_t bit = random() % (8 * good.size());
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    replace(*files, name, bad);
    SCOPED_TRACE(testing::Message() << name << ", bit " << bit << " of seed " << seed);
    EXPECT_FALSE(verify(*files).ok());
    EXPECT_THROW(load_all(files), CheckpointError);
    replace(*files, name, good);
  }
  EXPECT_TRUE(verify(*files).ok());
}

TEST(Flips, AreAllFound) { flip(saved({}), kFlips, 1); }

TEST(Flips, AreAllFoundInCompressedItems) { flip(saved({.transforms = {"zstd"}}), kFlips / 10, 2); }

TEST(Flips, AreAllFoundInRankLocalCheckpoints) {
  const std::shared_ptr<FileSystem> files = memory_file_system();
  run_ranks(2, [&](Group& group) {
    const auto writer = dcp_writer(files);
    save(trainer_state(group.rank(), 2, 1), "memory",
         {.group = &group, .use_collectives = false, .writer = writer.get()});
  });
  flip(files, kFlips / 10, 3);
}

}  // namespace
}  // namespace cairn
