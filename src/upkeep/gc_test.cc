#include "cairn/gc.h"

#include <gtest/gtest.h>

#include "cairn/cairn.h"
#include "cairn/verify.h"
#include "storage/file_names.h"
#include "testing/dcp.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/states.h"

namespace cairn {
namespace {

std::vector<std::string> names(const std::vector<FileEntry>& entries) {
  std::vector<std::string> all;
  for (const FileEntry& entry : entries) all.push_back(entry.name);
  return all;
}

struct Gc : testing::Test {
  void save_here() {
    const auto writer = dcp_writer(files);
    SaveOptions how;
    how.writer = writer.get();
    save(trainer_state(0, 1, 1), "memory", how);
    whole = files->list();
  }
  // What a save that was killed leaves.
  std::vector<std::string> die() {
    const SaveId dead = random_save_id();
    const std::vector<std::string> left = {manifest_name(dead), data_file_name(0, 0, dead),
                                           partial_name(data_file_name(0, 1, dead)),
                                           partial_name(".metadata")};
    for (const std::string& name : left) put_file(*files, name, "12345");
    return left;
  }

  std::shared_ptr<FileSystem> files = memory_file_system();
  std::vector<FileEntry> whole;
};

TEST_F(Gc, AnEmptyDescriptionIsOneThatCannotBeReadAndNothingGoes) {
  save_here();
  files->remove(".metadata");
  put_file(*files, ".metadata", "");
  const auto before = names(files->list());
  EXPECT_EQ(code_of([&] { gc(*files); }), ErrorCode::kCorrupt);
  EXPECT_EQ(names(files->list()), before);
}

TEST_F(Gc, RemovesWhatADeadSaveLeft) {
  save_here();
  const std::size_t left = die().size();
  const GcReport report = gc(*files);
  EXPECT_EQ(report.files.size(), left);
  EXPECT_EQ(report.bytes, 5 * left);
  EXPECT_EQ(files->list(), whole);
  EXPECT_TRUE(verify(*files).ok());
  EXPECT_TRUE(gc(*files).files.empty());
}

TEST_F(Gc, ADryRunRemovesNothing) {
  save_here();
  const std::size_t left = die().size();
  const std::vector<FileEntry> before = files->list();
  EXPECT_EQ(gc(*files, {.dry_run = true}).files.size(), left);
  EXPECT_EQ(files->list(), before);
}

TEST_F(Gc, WithoutACheckpointAllThatIsMarkedGoes) {
  die();
  put_file(*files, "__0_0.distcp", "torch's");
  put_file(*files, "notes.txt", "mine");
  gc(*files);
  EXPECT_EQ(names(files->list()), (std::vector<std::string>{"__0_0.distcp", "notes.txt"}));
}

TEST_F(Gc, KeepsEveryRanksOwnFiles) {
  run_ranks(2, [&](Group& group) {
    const auto writer = dcp_writer(files);
    SaveOptions how;
    how.group = &group;
    how.use_collectives = false;
    how.writer = writer.get();
    save(trainer_state(group.rank(), 2, 3), "memory", how);
  });
  whole = files->list();
  die();
  gc(*files);
  EXPECT_EQ(files->list(), whole);
}

TEST_F(Gc, ADescriptionThatCannotBeReadIsAnErrorAndNothingGoes) {
  save_here();
  die();
  put_file(*files, ".metadata", "rubbish");
  const std::vector<FileEntry> before = files->list();
  const Error e = error_of([&] { gc(*files); });
  EXPECT_EQ(e.file(), files->root() + "/.metadata");
  EXPECT_TRUE(mentions(e, "nothing was removed")) << e.what();
  EXPECT_EQ(files->list(), before);
}

TEST_F(Gc, ARunningSaveIsAConflict) {
  die();
  const std::vector<FileEntry> before = files->list();
  auto running = files->lock(lock_name());
  EXPECT_EQ(error_of([&] { gc(*files); }).code(), ErrorCode::kConflict);
  EXPECT_EQ(files->list(), before);
  running.reset();
  EXPECT_FALSE(gc(*files).files.empty());
}

TEST(GcDirectory, ARankThatIsStillSavingIsAConflict) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const std::string name = data_file_name(3, 0, random_save_id());
  put_file(*files, name, "being written");
  auto running = files->lock(lock_name(3));
  EXPECT_EQ(error_of([&] { gc(folder.path()); }).code(), ErrorCode::kConflict);
  EXPECT_TRUE(files->stat(name));
  running.reset();
  folder.write(lock_name(4), "");  // of one that died
  gc(folder.path());
  EXPECT_TRUE(files->list().empty());
}

TEST(GcDirectory, WhatIsNotThereIsNotFound) {
  const TestFolder folder;
  EXPECT_EQ(error_of([&] { gc(folder / "none"); }).code(), ErrorCode::kNotFound);
}

// Whatever call fails: an error, the checkpoint as it was, and the next gc finishes.
TEST_F(Gc, MayFailAtAnyCall) {
  save_here();
  const auto faults = std::make_shared<Faults>();
  auto inner = memory_file_system();
  for (const FileEntry& entry : whole) put_file(*inner, entry.name, get_file(*files, entry.name));
  files = faulty_file_system(std::move(inner), faults);
  die();
  for (std::size_t n = 1;; ++n) {
    die();
    faults->clear();
    faults->fail({.nth = n});
    bool failed = false;
    try {
      gc(*files);
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.code(), ErrorCode::kIo) << e.what();
    }
    const bool fired = faults->fired() > 0;
    EXPECT_EQ(failed, fired);
    faults->clear();
    EXPECT_TRUE(verify(*files).ok()) << n;
    gc(*files);
    EXPECT_EQ(files->list(), whole) << n;
    if (!fired) break;
  }
}

}  // namespace
}  // namespace cairn
