// Who is at work in a folder: seen by others while it lives, and no longer.
#include "storage/s3/lock.h"

#include <gtest/gtest.h>

#include "storage/s3/file_system.h"
#include "testing/errors.h"
#include "testing/s3_bucket.h"

namespace cairn::s3 {
namespace {

class S3Lock : public testing::Test {
 protected:
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const FileEntry& entry : files_->list()) all.push_back(entry.name);
    return all;
  }

  S3Server server_;
  std::shared_ptr<Bucket> bucket_ = bucket_at(server_), other_ = bucket_at(server_);
  std::unique_ptr<FileSystem> files_ = bucket_folder(bucket_, "run/");
};

TEST_F(S3Lock, KeepsNobodyOutOfAnotherProcessAndBothSeeThatTheyAreNotAlone) {
  const ObjectLock first(bucket_, "run/lock");
  EXPECT_FALSE(first.is_exclusive());
  EXPECT_TRUE(first.is_alone());
  EXPECT_EQ(code_of([&] { ObjectLock(bucket_, "run/lock"); }), ErrorCode::kConflict);
  {
    const ObjectLock second(other_, "run/lock");
    EXPECT_FALSE(first.is_alone());
    EXPECT_FALSE(second.is_alone());
  }
  EXPECT_TRUE(first.is_alone());
}

TEST_F(S3Lock, IsSeenWhileItIsHeldAndGoneAfterwards) {
  auto lock = files_->lock(".cairn-lock");
  EXPECT_EQ(names(), std::vector<std::string>{".cairn-lock"});
  lock.reset();
  EXPECT_TRUE(server_.keys().empty());
}

TEST_F(S3Lock, ADeadHoldersIsAPartialFileThatCanBeRemoved) {
  server_.put("run/lock.cairn-held.0123456789abcdef", "held\n");
  server_.put("run/.cairn-probe.0123", "");
  EXPECT_EQ(names(), std::vector<std::string>{"lock"});
  server_.set_clock_ahead(std::chrono::hours(2));
  const ObjectLock mine(other_, "run/lock");
  EXPECT_TRUE(mine.is_alone());
  files_->version_of("x");  // hears what time it is
  const auto left = names();
  ASSERT_EQ(left.size(), 3U);
  int removed = 0;
  for (const std::string& name : left)
    if (is_partial(name)) files_->remove(name), ++removed;
  EXPECT_EQ(removed, 2);
  EXPECT_EQ(names(), std::vector<std::string>{"lock"});
}

TEST_F(S3Lock, IsWrittenAgainWhileItIsHeld) {
  const ObjectLock lock(bucket_, "run/lock", std::chrono::milliseconds(1));
  const auto first = lock.renewed().value();
  server_.set_clock_ahead(std::chrono::hours(2));
  for (int i = 0; i < 30000 && server_.requests("PutObject") < 5; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(server_.requests("PutObject"), 5U);
  EXPECT_GT(lock.renewed().value(), first + std::chrono::hours(1));
}

}  // namespace
}  // namespace cairn::s3
