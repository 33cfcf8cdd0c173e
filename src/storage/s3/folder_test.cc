// A folder of a bucket as it is at one moment.
#include "storage/s3/folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/source.h"
#include "storage/s3/file_system.h"
#include "storage/write_file.h"
#include "testing/errors.h"
#include "testing/s3_bucket.h"

namespace cairn::s3 {
namespace {

class S3Folder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    write_file(*files_, name, text, {.replace = true});
  }

  S3Server server_;
  std::shared_ptr<Bucket> bucket_ = bucket_at(server_);
  std::unique_ptr<FileSystem> files_ = bucket_folder(bucket_, "run/");
};

TEST_F(S3Folder, IsLookedAtOnce) {
  for (int i = 0; i < 20; ++i) server_.put(fmt::format("run/{}", i), std::string(100, 'x'));
  server_.put("run/below/1", "y");
  server_.forget_requests();
  const std::shared_ptr<const FileSystem> now = files_->as_of_now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(now->stat(std::to_string(i))->size, 100U);
  EXPECT_EQ(now->stat("none"), std::nullopt);
  EXPECT_EQ(now->entries().size(), 21U);
  EXPECT_EQ(now->list().size(), 20U);
  EXPECT_EQ(server_.requests(), 1U);
  EXPECT_EQ(read_all(*now->open("7")), std::string(100, 'x'));
  EXPECT_EQ(server_.requests(), 2U);
  EXPECT_EQ(code_of([&] { now->open("none"); }), ErrorCode::kNotFound);
  EXPECT_EQ(server_.requests(), 2U);
  EXPECT_EQ(read_all(*now->open("below/1")), "y");
}

TEST_F(S3Folder, LosesManyFilesByOneRequest) {
  std::vector<std::string> names = {"none", "replaced"};
  for (int i = 0; i < 50; ++i) write(names.emplace_back(fmt::format("{}", i)), "x");
  write("replaced", "old");
  write("replaced", "new");
  write("stays", "x");
  const auto begun = files_->create("upload", {.size = 100 << 20});
  begun->write_at(0, std::vector<std::byte>(16 << 20));
  for (const FileEntry& entry : files_->list())
    if (is_partial(entry.name)) names.push_back(entry.name);
  ASSERT_EQ(names.size(), 53U);
  server_.forget_requests();
  files_->remove_all(names);
  EXPECT_LE(server_.requests(), 12U);
  EXPECT_EQ(server_.requests_by_kind().at("DeleteObjects"), 1U);
  EXPECT_EQ(server_.keys(), std::vector<std::string>{"run/stays"});
  EXPECT_EQ(files_->list().size(), 1U);
}

TEST_F(S3Folder, StaysWhatItWas) {
  write("a", "old");
  const auto now = files_->as_of_now();
  const auto read_before = now->open("a");
  write("b", "new");
  EXPECT_EQ(now->stat("b"), std::nullopt);
  EXPECT_TRUE(files_->stat("b").has_value());
  EXPECT_NE(now->as_of_now()->stat("b"), std::nullopt);
  server_.put("run/a", "another's");
  EXPECT_EQ(code_of([&] { read_all(*read_before); }), ErrorCode::kNotFound);
  EXPECT_EQ(read_all(*files_->open("a")), "another's");
}

TEST_F(S3Folder, HasTheNewestOfWhatWasReplaced) {
  write("a", "first");
  write("a", "the second");
  write("a", "third");
  const auto now = files_->as_of_now();
  EXPECT_EQ(now->stat("a")->size, 5U);
  EXPECT_EQ(read_all(*now->open("a")), "third");
  EXPECT_EQ(now->version_of("a"), files_->version_of("a"));
}

}  // namespace
}  // namespace cairn::s3
