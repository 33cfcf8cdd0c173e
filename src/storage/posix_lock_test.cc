#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "cairn/storage.h"
#include "testing/errors.h"
#include "testing/folder.h"

namespace cairn {
namespace {

// A process that takes the lock and keeps it until it is killed; returns once it has it.
pid_t fork_holder(const std::string& path) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto files = posix_file_system(path, {.io = IoPath::kBuffered});
    const auto held = files->lock("lock");
    static_cast<void>(::write(ends[1], "x", 1) == 1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char ready = 0;
  const bool has_it = ::read(ends[0], &ready, 1) == 1;
  ::close(ends[0]);
  return has_it ? child : -1;
}

TEST(PosixLock, TwoFileSystemsOnOneDirectoryExcludeEachOther) {
  const TestFolder folder;
  const auto one = posix_file_system(folder.path()), two = posix_file_system(folder.path());
  auto held = one->lock("lock");
  const Error e = error_of([&] { two->lock("lock"); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_EQ(e.file(), folder / "lock");
  EXPECT_TRUE(mentions(e, "process " + std::to_string(::getpid()) + " on ")) << e.what();
  held.reset();
  EXPECT_NE(two->lock("lock"), nullptr);
}

TEST(PosixLock, TheLockOfAKilledProcessCanBeTaken) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const pid_t child = fork_holder(folder.path());
  ASSERT_GT(child, 0);
  const Error e = error_of([&] { files->lock("lock"); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(e, "process " + std::to_string(child))) << e.what();
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::exists(folder / "lock"));  // what the dead left behind
  EXPECT_NE(files->lock("lock"), nullptr);
  EXPECT_TRUE(files->list().empty());
}

TEST(PosixLock, AForkedCopyOfTheHolderDoesNotGiveItBack) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  auto held = files->lock("lock");
  const pid_t child = ::fork();
  if (child == 0) {
    held.reset();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(error_of([&] { files->lock("lock"); }).code(), ErrorCode::kConflict);
}

TEST(PosixLock, AForkedCopyOfTheHolderDoesNotKeepIt) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto held = posix_file_system(folder.path(), {.io = IoPath::kBuffered})->lock("lock");
    if (::fork() == 0) {  // a worker of a data loader, say; it speaks when it is on its own
      const pid_t child = ::getpid();
      ::alarm(60);
      static_cast<void>(::write(ends[1], &child, sizeof(child)) == sizeof(child));
    }
    for (;;) ::pause();
  }
  pid_t child = -1;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  EXPECT_EQ(error_of([&] { files->lock("lock"); }).code(), ErrorCode::kConflict);
  ASSERT_EQ(::kill(holder, SIGKILL), 0);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  EXPECT_TRUE(files->lock("lock")->is_exclusive());
  ::kill(child, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(PosixLock, WhatADeadHolderOfThisMachineLeftIsExclusive) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const pid_t child = fork_holder(folder.path());
  ASSERT_GT(child, 0);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t ended;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(files->lock("lock")->is_exclusive()) << "nobody has asked how it ended yet";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(PosixLock, WhatAHolderElsewhereLeftIsTakenButNotExclusive) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  for (const char* text :
       {"process 1 on another, began 5, system 0123/4026531836\n", "process 1 on another\n"}) {
    folder.write("lock", text);
    auto held = files->lock("lock");
    EXPECT_FALSE(held->is_exclusive()) << text;
    held.reset();
    EXPECT_FALSE(files->lock("lock")->is_exclusive()) << "he may still be at work: " << text;
    EXPECT_EQ(std::filesystem::file_size(folder / "lock"), std::string_view(text).size());
  }
}

TEST(PosixLock, WhatALossOfPowerLeftOfALineIsExclusive) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  const std::string before =
      std::string("process 1 on ") + host.data() + ", began 5, system another-boot/4026531836\n";
  for (const std::string& text : {std::string(90, '\0'), std::string("process 1 on ano"), before}) {
    folder.write("lock", text);
    EXPECT_TRUE(files->lock("lock")->is_exclusive()) << text;
  }
}

TEST(PosixLock, WhatAHolderHereCouldNotRemoveIsExclusive) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  {
    const auto held = files->lock("lock");
    std::filesystem::copy_file(folder / "lock", folder / "copy");
  }
  std::filesystem::rename(folder / "copy", folder / "lock");
  EXPECT_TRUE(files->lock("lock")->is_exclusive());
}

TEST(PosixLock, TheHolderLearnsOfASecondOne) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const auto held = files->lock("lock");
  EXPECT_TRUE(held->is_exclusive());
  std::ofstream(folder / "lock", std::ios::app) << "process 7 on another, began 5, system 0123/4026531836\n";
  EXPECT_FALSE(held->is_exclusive());
}

TEST(PosixLock, TheHolderLearnsThatItsFileWasReplaced) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  auto held = files->lock("lock");
  std::filesystem::remove(folder / "lock");
  const auto other = files->lock("lock");
  EXPECT_FALSE(held->is_exclusive());
  held.reset();
  EXPECT_TRUE(other->is_exclusive()) << "what is not his he leaves alone";
}

TEST(PosixLock, AnotherFileUnderItsNameIsAnotherLock) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const auto held = files->lock("lock");
  std::filesystem::remove(folder / "lock");  // by hand
  EXPECT_NE(files->lock("lock"), nullptr);
}

TEST(PosixLock, FollowsNoLink) {
  const TestFolder folder;
  folder.write("outside", "precious");
  std::filesystem::create_directory(folder / "root");
  std::filesystem::create_symlink(folder / "outside", folder / "root/lock");
  const auto files = posix_file_system(folder / "root");
  EXPECT_EQ(error_of([&] { files->lock("lock"); }).os_error(), ELOOP);
  EXPECT_EQ(std::filesystem::file_size(folder / "outside"), 8U);
}

TEST(PosixLock, WhatAStrangerWroteIntoItIsNotShown) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  const auto held = files->lock("lock");
  folder.write("lock", "\x1b[2J\n");
  EXPECT_TRUE(mentions(error_of([&] { files->lock("lock"); }), "somebody else holds this lock"));
}

}  // namespace
}  // namespace cairn
