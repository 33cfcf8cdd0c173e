#include "storage/directory.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

TEST(Directory, ListsEntriesByNameWithKindAndSize) {
  const TestFolder folder;
  folder.write("b.bin", "12345");
  folder.write("a/inner", "x");
  std::filesystem::create_symlink("b.bin", folder / "c");
  using Kind = FileEntry::Kind;
  const auto root = Directory::open(folder.path());
  EXPECT_EQ(root->list(),
            (std::vector<FileEntry>{{"a", 0, Kind::kFolder}, {"b.bin", 5}, {"c", 0, Kind::kOther}}));
  EXPECT_EQ(root->list("", Links::kFollow),
            (std::vector<FileEntry>{{"a", 0, Kind::kFolder}, {"b.bin", 5}, {"c", 5}}));
}

TEST(Directory, CanBeListedTwice) {
  const TestFolder folder;
  folder.write("a", "");
  const auto directory = Directory::open(folder.path());
  EXPECT_EQ(directory->list().size(), 1u);
  EXPECT_EQ(directory->list().size(), 1u);
}

TEST(Directory, ListsAFolderInside) {
  const TestFolder folder;
  folder.write("a/b/inner", "x");
  const auto directory = Directory::open(folder.path());
  EXPECT_EQ(directory->list("a/b").size(), 1u);
  EXPECT_TRUE(directory->list("nothing").empty());
  EXPECT_EQ(error_of([&] { directory->list(".."); }).code(), ErrorCode::kCorrupt);
}

// Descriptors that have run out are no empty folder: whoever asks would take files for missing.
TEST(Directory, SaysSoWhenAFolderInsideCannotBeOpened) {
#ifdef CAIRN_SANITIZED
  GTEST_SKIP()
      << "UBSan needs descriptors itself; tests/trial/test_limits.py runs out of them in a whole program";
#endif
  const TestFolder folder;
  folder.write("a/inner", "x");
  const auto directory = Directory::open(folder.path());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{static_cast<rlim_t>(directory->descriptor()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Error e = error_of([&] { directory->list("a"); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(e.os_error(), EMFILE) << e.what();
  EXPECT_EQ(directory->list("a").size(), 1u);
}

TEST(Directory, MissingOneIsNotFound) {
  const TestFolder folder;
  EXPECT_EQ(error_of([&] { Directory::open(folder / "none"); }).code(), ErrorCode::kNotFound);
}

std::string text_of(const Descriptor& file) {
  std::string text(64, '\0');
  text.resize(static_cast<std::size_t>(::read(file.get(), text.data(), text.size())));
  return text;
}

TEST(Directory, OpeningReadsAFileAndOneInAFolder) {
  const TestFolder folder;
  folder.write("a", "one");
  folder.write("d/e/b", "two");
  const auto root = Directory::open(folder.path());
  EXPECT_EQ(text_of(root->open_beneath("a")), "one");
  EXPECT_EQ(text_of(root->open_beneath("d/e/b")), "two");
}

TEST(Directory, OpeningRefusesPathsThatLeaveTheDirectory) {
  const TestFolder folder;
  folder.write("in/a", "one");
  folder.write("out", "two");
  const auto root = Directory::open(folder / "in");
  for (const char* path : {"../out", "..", ".", "", "/etc/hostname", "a/../../out", "./a", "a//b", "a/"}) {
    EXPECT_EQ(error_of([&] { root->open_beneath(path); }).code(), ErrorCode::kCorrupt) << path;
  }
  EXPECT_EQ(error_of([&] { root->open_beneath(std::string_view("a\0b", 3)); }).code(), ErrorCode::kCorrupt);
}

TEST(Directory, OpeningRefusesLinksUnlessAskedToFollowTheLastStep) {
  const TestFolder folder;
  folder.write("out/secret", "two");
  folder.write("in/a", "one");
  std::filesystem::create_symlink("../out/secret", folder / "in/link");
  std::filesystem::create_symlink("../out", folder / "in/way");
  std::filesystem::create_symlink("a", folder / "in/near");
  const auto root = Directory::open(folder / "in");
  for (const char* path : {"link", "way/secret", "near"}) {
    const Error e = error_of([&] { root->open_beneath(path); });
    EXPECT_EQ(e.code(), ErrorCode::kIo) << path;
    EXPECT_EQ(e.os_error(), ELOOP) << path;
  }
  EXPECT_EQ(text_of(root->open_beneath("link", Links::kFollow)), "two");
  EXPECT_EQ(error_of([&] { root->open_beneath("way/secret", Links::kFollow); }).code(), ErrorCode::kIo);
}

}  // namespace
}  // namespace cairn
