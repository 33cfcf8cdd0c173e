// Which file system a URL means, and what is there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cairn/storage.h"
#include "testing/errors.h"
#include "testing/folder.h"
#ifdef CAIRN_HAVE_S3
#include "testing/s3_server.h"
#endif

namespace cairn {
namespace {

void put(FileSystem& files, std::string_view name) { files.create(name)->commit(); }

std::string url_of(const std::string& path) { return "file://" + path; }

TEST(Url, APathAndAFileUrlAreTheSamePlace) {
  const TestFolder folder;
  folder.write("a b/x", "");
  const std::string same = file_system_of(folder / "a b")->identity();
  EXPECT_EQ(file_system_of(url_of(folder / "a%20b"))->identity(), same);
  EXPECT_EQ(file_system_of("file://localhost" + (folder / "a b"))->identity(), same);
  EXPECT_EQ(file_system_of(url_of(folder / "a b/"))->identity(), same);
}

TEST(Url, AFileUrlIsAbsoluteAndItsPercentSignsMeanSomething) {
  for (const char* url : {"file://run/step", "file://", "file:///a%2", "file:///a%zz", "file:///a%00"})
    EXPECT_EQ(code_of([&] { file_system_of(url); }), ErrorCode::kInvalidArgument) << url;
}

TEST(Url, AnUnknownSchemeIsAnErrorThatListsTheKnownOnes) {
  const Error e = error_of([] { find_place("gopher://hole/step-1"); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  for (const char* word : {"gopher://", "file://", "memory://"})
    EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
}

TEST(Url, WhatOnlyLooksLikeAUrlIsAPath) {
  const TestFolder folder;
  folder.write("s3:/x", "");
  EXPECT_EQ(file_system_of(folder / "s3:")->list().size(), 1U);
  EXPECT_EQ(code_of([] { file_system_of("./s3://bucket"); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([] { file_system_of("://x"); }), ErrorCode::kNotFound);
}

TEST(Url, MemoryIsSharedByThoseWhoSayTheSameName) {
  put(*file_system_of("memory://shared-by-name/run/step-1", {.create = true}), "x");
  EXPECT_EQ(file_system_of("memory://shared-by-name/run/step-1")->list().size(), 1U);
  EXPECT_EQ(file_system_of("memory://shared-by-name//run/step-1/")->list().size(), 1U);
  EXPECT_EQ(file_system_of("memory://shared-by-name/run")->enter("step-1")->list().size(), 1U);
  EXPECT_EQ(code_of([] { file_system_of("memory://another-name/run"); }), ErrorCode::kNotFound);
  for (const char* url : {"memory://", "memory:///", "memory://a/../b"})
    EXPECT_EQ(code_of([&] { file_system_of(url); }), ErrorCode::kInvalidArgument) << url;
}

#ifdef CAIRN_HAVE_S3
TEST(Url, ABucketHasAName) {
  for (const char* url :
       {"s3://", "s3:///run", "s3://a", "s3://a@b.c/x", "s3://bucket:80/x", "s3://bucket/run/../x"})
    EXPECT_EQ(code_of([&] { file_system_of(url); }), ErrorCode::kInvalidArgument) << url;
}

TEST(FindPlace, TellsAFolderAFileAndNothingOfABucket) {
  S3Server server;
  ::setenv("AWS_ENDPOINT_URL_S3", server.endpoint().c_str(), 1);
  ::setenv("CAIRN_S3_UNSIGNED", "1", 1);
  server.put("run/model.pt", "x");
  server.put("run/step-1/.metadata", "x");
  EXPECT_TRUE(find_place("s3://bucket").is_folder());
  EXPECT_TRUE(find_place("s3://bucket/run/step-1").is_folder());
  EXPECT_TRUE(find_place("s3://bucket//run/step-1/").is_folder());
  const Place file = find_place("s3://bucket/run/model.pt");
  ASSERT_TRUE(file.is_file());
  EXPECT_EQ(file.name, "model.pt");
  EXPECT_EQ(file.files->identity(), file_system_of("s3://bucket/run")->identity());
  EXPECT_EQ(file.files->root(), "s3://bucket/run");
  EXPECT_EQ(find_place("s3://bucket/none").files, nullptr);
  EXPECT_EQ(find_place("s3://bucket/run/model.pt/none").files, nullptr);
  EXPECT_EQ(code_of([] { file_system_of("s3://bucket/none"); }), ErrorCode::kNotFound);
  EXPECT_TRUE(file_system_of("s3://bucket/none", {.create = true})->list().empty());
  EXPECT_EQ(code_of([] { file_system_of("s3://no-such-bucket"); }), ErrorCode::kNotFound);
  ::unsetenv("AWS_ENDPOINT_URL_S3");
  ::unsetenv("CAIRN_S3_UNSIGNED");
}
#else
TEST(Url, WithoutObjectStoresABucketIsAnErrorThatSaysHowToGetThem) {
  const Error e = error_of([] { file_system_of("s3://bucket/run"); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(e, "libcurl")) << e.what();
}
#endif

TEST(FindPlace, TellsAFolderAFileAndNothing) {
  const TestFolder folder;
  for (const std::string& root : {folder.path(), std::string("memory://find-place")}) {
    auto files = file_system_of(root, {.create = true});
    put(*files, "model.pt");
    put(*files->enter("step-1", true), "x");
    EXPECT_TRUE(find_place(root).is_folder());
    EXPECT_TRUE(find_place(root + "/step-1").is_folder());
    EXPECT_TRUE(find_place(root + "/step-1/").is_folder());
    const Place file = find_place(root + "/model.pt");
    ASSERT_TRUE(file.is_file());
    EXPECT_EQ(file.name, "model.pt");
    EXPECT_EQ(file.files->identity(), files->identity());
    EXPECT_EQ(find_place(root + "/none").files, nullptr);
    EXPECT_EQ(find_place(root + "/model.pt/none").files, nullptr);
    EXPECT_EQ(find_place(root + "/none/none").files, nullptr);
  }
  EXPECT_EQ(find_place("memory://never-written-to").files, nullptr);
}

TEST(FindPlace, ALinkThatLeadsNowhereIsThere) {
  const TestFolder folder;
  std::filesystem::create_symlink("nowhere", folder / "link");
  const Place place = find_place(folder / "link", {.follow_links = true});
  ASSERT_TRUE(place.is_file());
  EXPECT_EQ(code_of([&] { place.files->open(place.name); }), ErrorCode::kNotFound);
}

TEST(FindPlace, AFileInAFolderThatMayNotBeListedCanBeOpened) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may list everything";
  const TestFolder folder;
  folder.write("a/x", "1");
  std::filesystem::permissions(folder / "a", std::filesystem::perms::owner_exec);
  const Place place = find_place(folder / "a/x");
  EXPECT_EQ(place.files->open(place.name)->size(), 1U);
  std::filesystem::permissions(folder / "a", std::filesystem::perms::owner_all);
}

TEST(SplitUrl, GivesTheFolderAndTheName) {
  const auto parts = [](const std::string& url) {
    const UrlParts p = split_url(url);
    return p.folder + " | " + p.name;
  };
  EXPECT_EQ(parts("run/step-1/model.pt"), "run/step-1 | model.pt");
  EXPECT_EQ(parts("model.pt"), ". | model.pt");
  EXPECT_EQ(parts("/model.pt"), "/ | model.pt");
  EXPECT_EQ(parts("run/"), ". | run");
  EXPECT_EQ(parts("file:///data/a%20b.pt"), "/data | a b.pt");
  EXPECT_EQ(parts("memory://name/run/model.pt"), "memory://name/run | model.pt");
  EXPECT_EQ(parts("s3://bucket/run/model.pt"), "s3://bucket/run | model.pt");
}

}  // namespace
}  // namespace cairn
