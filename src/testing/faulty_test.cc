#include "testing/faulty.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "testing/errors.h"

namespace cairn {
namespace {

class Faulty : public testing::Test {
 protected:
  // What a small save does: two writes, a commit, a sync.
  void work() {
    auto file = files_->create("a", {.replace = true});
    file->write_at(0, std::as_bytes(std::span("12345678", 8)));
    file->write_at(8, std::as_bytes(std::span("12345678", 8)));
    file->commit();
    files_->sync_directory();
  }

  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<FileSystem> files_ = faulty_file_system(memory_file_system(), faults_);
};

TEST_F(Faulty, RecordsWhatItIsAsked) {
  work();
  const auto trace = faults_->trace();
  ASSERT_EQ(trace.size(), 5U);
  EXPECT_EQ(name_of(trace[2].call), "write");
  EXPECT_EQ(trace[2].offset, 8U);
  EXPECT_EQ(trace[2].size, 8U);
}

TEST_F(Faulty, EveryCallCanBeTheOneThatFails) {
  for (std::uint64_t n = 1; n <= 5; ++n) {
    faults_->clear();
    faults_->fail({.nth = n, .os_error = ENOSPC});
    const Error e = error_of([&] { work(); });
    EXPECT_EQ(e.os_error(), ENOSPC);
    EXPECT_EQ(faults_->fired(), 1U) << n;
  }
  faults_->clear();
  faults_->fail({.nth = 6});
  work();
  EXPECT_EQ(faults_->fired(), 0U);
}

TEST_F(Faulty, AFaultForEverHitsAllThatFollows) {
  faults_->fail({.call = FileCall::kWrite, .nth = 2, .for_ever = true});
  EXPECT_EQ(error_of([&] { work(); }).os_error(), EIO);
  EXPECT_EQ(error_of([&] { work(); }).os_error(), EIO);
  EXPECT_EQ(faults_->fired(), 2U);
}

TEST_F(Faulty, AWriteMayStopHalfway) {
  faults_->fail({.call = FileCall::kWrite, .nth = 2, .halfway = true});
  auto file = files_->create("a");
  file->write_at(0, std::as_bytes(std::span("12345678", 8)));
  error_of([&] { file->write_at(8, std::as_bytes(std::span("12345678", 8))); });
  file->commit();
  EXPECT_EQ(files_->stat("a")->size, 12U);
}

TEST_F(Faulty, AReplyMayBeLostAfterTheWorkIsDone) {
  faults_->fail({.call = FileCall::kCommit, .after = true});
  error_of([&] { work(); });
  EXPECT_EQ(files_->stat("a")->size, 16U);
}

}  // namespace
}  // namespace cairn
