#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "cairn/storage.h"
#include "storage/file_names.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

TEST(Posix, MakesTheDirectoriesItIsAskedFor) {
  const TestFolder folder;
  const auto files = posix_file_system(folder / "a/b/c", {.create = true});
  files->create("x")->commit();
  EXPECT_TRUE(std::filesystem::exists(folder / "a/b/c/x"));
  EXPECT_EQ(error_of([&] { posix_file_system(folder / "none"); }).code(), ErrorCode::kNotFound);
}

TEST(Posix, AFileInTheWayOfADirectoryIsNamed) {
  const TestFolder folder;
  folder.write("a", "");
  const Error e = error_of([&] { posix_file_system(folder / "a/b", {.create = true}); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), ENOTDIR);
}

TEST(Posix, FollowsNoLinkOutOfItsDirectory) {
  const TestFolder folder;
  folder.write("secret", "x");
  folder.write("root/real", "y");
  std::filesystem::create_symlink(folder / "secret", folder / "root/link");
  const auto files = posix_file_system(folder / "root");
  EXPECT_EQ(error_of([&] { files->open("link"); }).code(), ErrorCode::kIo);
  EXPECT_EQ(error_of([&] { files->open("../secret"); }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(files->list(), (std::vector<FileEntry>{{"real", 1}}));
}

TEST(Posix, APipeIsRefusedAtOnce) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const IoPath io : {IoPath::kAuto, IoPath::kBuffered, IoPath::kDirect, IoPath::kUring}) {
    const auto files = posix_file_system(folder.path(), {.io = io});
    EXPECT_EQ(error_of([&] { files->open("pipe"); }).code(), ErrorCode::kIo);
    EXPECT_FALSE(files->stat("pipe"));
  }
}

TEST(Posix, SaysThatTheDiskIsFullBeforeItIsWrittenTo) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const std::uint64_t room = files->free_space().value();
  const Error e = error_of([&] { files->create("a", {.size = room + (std::uint64_t{64} << 30)}); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_TRUE(e.os_error() == ENOSPC || e.os_error() == EFBIG) << e.what();
  EXPECT_TRUE(files->list().empty());
}

// The kernel's answer to who tries is a signal, and that ends the process.
TEST(Posix, AFileThatMayNotGrowIsAnErrorAndNoSignal) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{10000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  const std::vector<std::byte> bytes(10001);
  const auto file = files->create("a", {.size = bytes.size()});
  file->write_at(0, std::span(bytes).first(10000));
  const Error e = error_of([&] { file->write_at(0, bytes); });
  const auto lock = files->lock("lock");
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), EFBIG) << e.what();
}

TEST(Posix, AnUnknownWayIsRefusedByName) {
  const TestFolder folder;
  ::setenv("CAIRN_IO", "telepathy", 1);
  const Error e = error_of([&] { posix_file_system(folder.path()); });
  ::unsetenv("CAIRN_IO");
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(e, "telepathy"));
}

TEST(Posix, PartialNamesAreToldFromOthers) {
  EXPECT_TRUE(is_partial(partial_name("__0_0.distcp")));
  EXPECT_NE(partial_name("a"), partial_name("a"));
  EXPECT_FALSE(is_partial("__0_0.distcp"));
  EXPECT_FALSE(is_partial(".cairn-partial"));
  EXPECT_FALSE(is_partial("a.0123456789abcdeg.cairn-partial"));
}

}  // namespace
}  // namespace cairn
