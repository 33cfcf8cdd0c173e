// What every FileSystem promises, tried on each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <ostream>
#include <random>
#include <thread>

#include "cairn/storage.h"
#include "cairn/tensor.h"
#include "testing/crippled.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/folder.h"
#include "testing/mount.h"
#ifdef CAIRN_HAVE_S3
#include "storage/s3/file_system.h"
#include "testing/s3_bucket.h"
#endif

namespace cairn {
namespace {

// What a kind can do. Whether locks hold across machines is not the kind's to say.
constexpr Capabilities kDisk = {.atomic_rename = true,
                                .exclusive_create = true,
                                .append = true,
                                .ranged_writes = true,
                                .directory_sync = true,
                                .symbolic_links = true,
                                .modification_times = true};
constexpr Capabilities kMemory = {.atomic_rename = true,
                                  .exclusive_create = true,
                                  .replace_if_unchanged = true,
                                  .append = true,
                                  .ranged_writes = true,
                                  .directory_sync = true,
                                  .modification_times = true};

// An object store has one way to keep writers apart, and builds on it.
constexpr Capabilities kObjects = {.exclusive_create = true,
                                   .replace_if_unchanged = true,
                                   .append = true,
                                   .ranged_writes = true,
                                   .modification_times = true};

struct FileSystemKind {
  const char* name;
  Capabilities can;
  std::function<std::unique_ptr<FileSystem>(const std::string& folder)> make;
  std::vector<const char*> mount = {};  // the switches of a mount that it is behind
};

constexpr Capabilities without_directory_sync(Capabilities can) {
  can.directory_sync = false;
  return can;
}

constexpr Capabilities without_ranged_writes(Capabilities can) {
  can.ranged_writes = false;
  return can;
}

// One whose files only grow.
struct Owned {
  std::unique_ptr<FileSystem> inner = memory_file_system();
};
class GrowingFiles final : Owned, public CrippledFileSystem {
 public:
  GrowingFiles() : CrippledFileSystem(*Owned::inner, {.ranged_writes = true}) {}
};

std::unique_ptr<FileSystem> on_disk(const std::string& folder) { return posix_file_system(folder); }

#ifdef CAIRN_HAVE_S3
// One server for all, and a folder for each test.
std::unique_ptr<FileSystem> in_bucket(const std::string& folder, bool no_conditions) {
  static const auto server = std::make_unique<S3Server>();
  static const auto weak = std::make_unique<S3Server>(S3ServerOptions{.no_conditions = true});
  return s3::bucket_folder(bucket_at(no_conditions ? *weak : *server), folder.substr(1) + "/");
}
#endif

constexpr Capabilities without_conditions(Capabilities can) {
  can.exclusive_create = can.replace_if_unchanged = false;
  return can;
}

void PrintTo(const FileSystemKind& kind, std::ostream* to) { *to << kind.name; }

const FileSystemKind kKinds[] = {
#ifdef CAIRN_HAVE_S3
    {"s3", kObjects, [](const std::string& f) { return in_bucket(f, false); }},
    {"s3_without_conditions", without_conditions(kObjects),
     [](const std::string& f) { return in_bucket(f, true); }},
#endif
    {"memory", kMemory, [](const std::string&) { return memory_file_system(); }},
    {"shared_memory", kMemory,
     [](const std::string& f) { return file_system_of("memory:/" + f, {.create = true}); }},
    {"file_url", kDisk, [](const std::string& f) { return file_system_of("file://" + f); }},
    {"buffered", kDisk, [](const std::string& f) { return posix_file_system(f, {.io = IoPath::kBuffered}); }},
    {"direct", kDisk, [](const std::string& f) { return posix_file_system(f, {.io = IoPath::kDirect}); }},
    {"uring", kDisk, [](const std::string& f) { return posix_file_system(f, {.io = IoPath::kUring}); }},
    {"automatic", kDisk, on_disk},
    {"faulty", kMemory,
     [](const std::string&) { return faulty_file_system(memory_file_system(), std::make_shared<Faults>()); }},
    {"growing", without_ranged_writes(kMemory),
     [](const std::string&) { return std::make_unique<GrowingFiles>(); }},
    {"mounted", kDisk, on_disk, {"stale"}},
    {"mounted_no_exclusive_rename", kDisk, on_disk, {"no-exclusive-rename"}},
    {"mounted_crippled",
     without_directory_sync(kDisk),
     on_disk,
     {"no-links", "no-exclusive-rename", "no-directory-sync", "no-direct"}},
};

class AnyFileSystem : public testing::TestWithParam<FileSystemKind> {
 protected:
  static std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

  static void put(FileSystem& files, std::string_view name, std::string_view text,
                  const CreateOptions& options = {}) {
    auto file = files.create(name, options);
    file->write_at(0, bytes(text));
    file->commit();
  }
  void write(std::string_view name, std::string_view text, const CreateOptions& options = {}) {
    put(*files_, name, text, options);
  }
  std::string read(std::string_view name) {
    const auto source = files_->open(name);
    std::string text(source->size(), '\0');
    source->read_at(0, std::as_writable_bytes(std::span(text)));
    return text;
  }
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const FileEntry& entry : files_->list()) all.push_back(entry.name);
    return all;
  }

  void SetUp() override {
    if (!GetParam().mount.empty()) {
      if (const std::string why = why_no_mounts(); !why.empty()) GTEST_SKIP() << why;
      mount_.emplace(folder_.path(), GetParam().mount);
    }
    files_ = GetParam().make(mount_ ? mount_->path() : folder_.path());
  }

  TestFolder folder_;
  std::optional<CrippledMount> mount_;
  std::unique_ptr<FileSystem> files_;
};

INSTANTIATE_TEST_SUITE_P(All, AnyFileSystem, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(AnyFileSystem, ReadsBackWhatWasCommitted) {
  write("a", "hello");
  EXPECT_EQ(read("a"), "hello");
  EXPECT_EQ(files_->stat("a"), (FileEntry{"a", 5}));
}

TEST_P(AnyFileSystem, AFileIsThereOnlyOnceItIsCommitted) {
  auto file = files_->create("a");
  file->write_at(0, bytes("hello"));
  EXPECT_EQ(files_->stat("a"), std::nullopt);
  EXPECT_EQ(error_of([&] { files_->open("a"); }).code(), ErrorCode::kNotFound);
  for (const std::string& name : names()) EXPECT_TRUE(is_partial(name)) << name;
  file->commit();
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_P(AnyFileSystem, AnUncommittedFileLeavesNothingBehind) {
  files_->create("a", {.size = 1 << 20})->write_at(0, bytes("hello"));
  EXPECT_TRUE(names().empty());
}

TEST_P(AnyFileSystem, AFileMayBeEmpty) {
  files_->create("a")->commit();
  EXPECT_EQ(read("a"), "");
}

TEST_P(AnyFileSystem, AFileIsAsLongAsTheLastByteWrittenWhateverWasReserved) {
  auto file = files_->create("a", {.size = 100000});
  file->write_at(3, bytes("x"));
  file->commit();
  EXPECT_EQ(read("a"), std::string("\0\0\0x", 4));
}

TEST_P(AnyFileSystem, ASecondFileOfOneNameIsAConflict) {
  write("a", "old");
  EXPECT_EQ(error_of([&] { files_->create("a"); }).code(), ErrorCode::kConflict);
  EXPECT_EQ(read("a"), "old");
}

TEST_P(AnyFileSystem, OfTwoWritersOfOneNameTheFirstToCommitWins) {
  auto first = files_->create("a");
  auto second = files_->create("a");
  first->write_at(0, bytes("first"));
  second->write_at(0, bytes("second"));
  first->commit();
  EXPECT_EQ(error_of([&] { second->commit(); }).code(), ErrorCode::kConflict);
  second.reset();
  EXPECT_EQ(read("a"), "first");
  EXPECT_EQ(names().size(), 1U);
}

TEST_P(AnyFileSystem, AReplacementTakesThePlaceInOneStep) {
  write("a", "old");
  auto file = files_->create("a", {.replace = true});
  file->write_at(0, bytes("new and longer"));
  EXPECT_EQ(read("a"), "old");
  const auto reader = files_->open("a");
  file->commit();
  EXPECT_EQ(read("a"), "new and longer");
  std::string text(3, '\0');
  const auto read_on = [&] { reader->read_at(0, std::as_writable_bytes(std::span(text))); };
  const std::string_view kind = GetParam().name;
  if (kind == "mounted" || kind.starts_with("s3")) {
    EXPECT_EQ(error_of(read_on).os_error(), ESTALE);  // servers do not keep what nobody names any more
    EXPECT_EQ(error_of(read_on).code(), ErrorCode::kNotFound);
    return;
  }
  read_on();
  EXPECT_EQ(text, "old");  // who had it open still has it
}

TEST_P(AnyFileSystem, SaysWhatItCanDo) {
  files_->sync_directory();  // whether there is such a thing is found out by trying
  Capabilities can = files_->capabilities();
  EXPECT_TRUE(!mount_ || !can.locks_across_machines) << "nobody knows who else has mounted it";
  can.locks_across_machines = false;
  EXPECT_EQ(can, GetParam().can);
}

TEST_P(AnyFileSystem, AFileIsReplacedOnlyWhileItIsTheExpectedOneOrNobodyCanTell) {
  write("a", "old");
  const auto old = files_->version_of("a");
  if (!files_->capabilities().replace_if_unchanged) {
    EXPECT_EQ(code_of([&] { files_->create("a", {.replace = true, .expected = old}); }),
              ErrorCode::kUnsupported);
    return;
  }
  const auto first = files_->create("a", {.replace = true, .expected = old});
  const auto second = files_->create("a", {.replace = true, .expected = old});
  first->write_at(0, bytes("first"));
  second->write_at(0, bytes("second"));
  first->commit();
  EXPECT_EQ(code_of([&] { second->commit(); }), ErrorCode::kConflict);
  EXPECT_EQ(read("a"), "first");
  const auto third = files_->create("a", {.replace = true, .expected = files_->version_of("a")});
  files_->remove("a");
  EXPECT_EQ(code_of([&] { third->commit(); }), ErrorCode::kConflict);
  EXPECT_TRUE(names().empty());
}

TEST_P(AnyFileSystem, OfManyThreadsOneCommitsAName) {
  if (!GetParam().can.exclusive_create) return GTEST_SUCCEED();
  for (int round = 0; round < 20; ++round) {
    const std::string name = "a" + std::to_string(round);
    std::atomic<int> won = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        try {
          write(name, std::to_string(t));
          ++won;
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::kConflict) << e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(won, 1);
    EXPECT_EQ(read(name).size(), 1U);
  }
}

TEST_P(AnyFileSystem, AFileGrowsFromItsFrontToItsEnd) {
  auto file = files_->create("a");
  std::string all;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(static_cast<std::size_t>(i * 37 % 5003), static_cast<char>('a' + i % 26));
    file->write_at(all.size(), bytes(piece));
    all += piece;
  }
  file->commit();
  EXPECT_EQ(read("a"), all);
}

TEST_P(AnyFileSystem, AFileThatOnlyGrowsSaysSo) {
  auto file = files_->create("a");
  EXPECT_EQ(file->appends_only(), !GetParam().can.ranged_writes);
  file->write_at(0, bytes("abc"));
  const auto write_before = [&] { file->write_at(1, bytes("x")); };
  if (file->appends_only()) {
    EXPECT_EQ(code_of(write_before), ErrorCode::kUnsupported);
    return;
  }
  write_before();
  file->commit();
  EXPECT_EQ(read("a"), "axc");
}

TEST_P(AnyFileSystem, AFileWasModifiedWhenItWasWritten) {
  EXPECT_EQ(files_->modified("a"), std::nullopt);
  const auto before = std::chrono::system_clock::now() - std::chrono::seconds(2);  // coarse clocks of disks
  write("a", "1");
  const auto after = std::chrono::system_clock::now() + std::chrono::seconds(2);
  ASSERT_NE(files_->modified("a"), std::nullopt);
  EXPECT_TRUE(before <= *files_->modified("a") && *files_->modified("a") <= after);
}

TEST_P(AnyFileSystem, RenameReplacesAndRemoveRemoves) {
  write("a", "1");
  write("b", "2");
  files_->rename("a", "b");
  EXPECT_EQ(read("b"), "1");
  EXPECT_EQ(names(), std::vector<std::string>{"b"});
  files_->rename("b", "b");
  EXPECT_EQ(read("b"), "1");
  files_->remove("b");
  EXPECT_TRUE(names().empty());
  files_->sync_directory();
}

TEST_P(AnyFileSystem, OfManyThatAreToGoSomeMayBeGoneAlready) {
  for (const char* name : {"a", "b", "c", "d"}) write(name, name);
  files_->remove_all(std::vector<std::string>{"a", "none", "c"});
  EXPECT_EQ(names(), (std::vector<std::string>{"b", "d"}));
  files_->remove_all(std::vector<std::string>{"none"});
  files_->remove_all({});
  EXPECT_EQ(names().size(), 2U);
}

TEST_P(AnyFileSystem, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(error_of([&] { files_->open("a"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { files_->remove("a"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { files_->rename("a", "b"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(files_->stat("a"), std::nullopt);
}

TEST_P(AnyFileSystem, NamesAreOneStepOfAPath) {
  using namespace std::string_view_literals;
  for (const std::string_view name : {""sv, "."sv, ".."sv, "a/b"sv, "/a"sv, "a\0b"sv})
    EXPECT_EQ(error_of([&] { files_->create(name); }).code(), ErrorCode::kInvalidArgument) << name;
}

TEST_P(AnyFileSystem, ReadingPastTheEndIsAnErrorThatSaysWhere) {
  write("a", "hello");
  const auto source = files_->open("a");
  std::array<std::byte, 4> to{};
  const Error e = error_of([&] { source->read_at(3, to); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.offset(), 3U);
  EXPECT_EQ(error_of([&] { source->read_at(~std::uint64_t{0}, to); }).code(), ErrorCode::kCorrupt);
}

TEST_P(AnyFileSystem, ALockHasOneHolderAtATime) {
  const auto held = files_->lock("lock");
  EXPECT_EQ(error_of([&] { files_->lock("lock"); }).code(), ErrorCode::kConflict);
  const auto other = files_->lock("other lock");
}

TEST_P(AnyFileSystem, ALockIsFreeOnceItIsGivenBack) {
  files_->lock("lock").reset();
  auto held = files_->lock("lock");
  EXPECT_EQ(error_of([&] { files_->lock("lock"); }).code(), ErrorCode::kConflict);
  held.reset();
  held = files_->lock("lock");
  EXPECT_NE(held, nullptr);
}

TEST_P(AnyFileSystem, NothingStaysBehindOfALock) {
  write("a", "1");
  files_->lock("lock").reset();
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_P(AnyFileSystem, ALockOutlivesItsFileSystem) {
  auto folder = files_->enter("folder", true);
  auto held = folder->lock("lock");
  folder.reset();
  EXPECT_EQ(code_of([&] { files_->enter("folder")->lock("lock"); }), ErrorCode::kConflict);
  held.reset();
  EXPECT_NE(files_->enter("folder")->lock("lock"), nullptr);
}

TEST_P(AnyFileSystem, AFolderIsEnteredOnceItIsMade) {
  EXPECT_EQ(code_of([&] { files_->enter("a"); }), ErrorCode::kNotFound);
  auto inner = files_->enter("a", true);
  put(*inner, "x", "inner");
  put(*inner->enter("b", true), "y", "innermost");
  write("x", "outer");
  using Kind = FileEntry::Kind;
  EXPECT_EQ(files_->entries(), (std::vector<FileEntry>{{"a", 0, Kind::kFolder}, {"x", 5}}));
  EXPECT_EQ(files_->list(), (std::vector<FileEntry>{{"x", 5}}));
  EXPECT_EQ(files_->entries("a"), (std::vector<FileEntry>{{"b", 0, Kind::kFolder}, {"x", 5}}));
  EXPECT_EQ(files_->entries("a/b"), (std::vector<FileEntry>{{"y", 9}}));
  EXPECT_EQ(read("a/b/y"), "innermost");
  EXPECT_EQ(files_->enter("a")->list(), (std::vector<FileEntry>{{"x", 5}}));
  EXPECT_THROW(files_->enter("x"), Error) << "a file";
  EXPECT_THROW(write("a", "in the way of a folder"), Error);
}

TEST_P(AnyFileSystem, AFolderThatIsNotThereHasNothingInIt) {
  EXPECT_TRUE(files_->entries("none").empty());
  EXPECT_TRUE(files_->entries("none/deeper").empty());
  for (const char* path : {"..", ".", "a/../..", "/etc", "a//b"})
    EXPECT_EQ(code_of([&] { files_->entries(path); }), ErrorCode::kCorrupt) << path;
  for (const char* path : {"..", "a/b", ""})
    EXPECT_EQ(code_of([&] { files_->enter(path, true); }), ErrorCode::kInvalidArgument) << path;
}

TEST_P(AnyFileSystem, FoldersThatWereMadeCanBeTakenBackWhileNothingIsInThem) {
  files_->enter("empty", true)->remove_made_folders();
  auto full = files_->enter("full", true);
  put(*full, "x", "");
  full->remove_made_folders();
  files_->enter("full", true)->remove_made_folders();  // it did not make it
  ASSERT_EQ(files_->entries().size(), 1U);
  EXPECT_EQ(files_->entries()[0].name, "full");
}

TEST_P(AnyFileSystem, AFolderIsTheSameWhoeverEntersIt) {
  const auto a = files_->enter("a", true), b = files_->enter("b", true);
  EXPECT_EQ(a->identity(), files_->enter("a")->identity());
  EXPECT_NE(a->identity(), b->identity());
  EXPECT_NE(a->identity(), files_->identity());
}

TEST_P(AnyFileSystem, AVersionTellsAFileFromTheOneBeforeIt) {
  EXPECT_EQ(files_->version_of("a"), std::nullopt);
  write("a", "1");
  const auto first = files_->version_of("a");
  ASSERT_NE(first, std::nullopt);
  EXPECT_EQ(files_->version_of("a"), first);
  write("a", "2", {.replace = true});
  EXPECT_NE(files_->version_of("a"), first);
}

// Whoever thinks to have the lock is alone with it, however many come and go.
TEST_P(AnyFileSystem, OfManyThreadsOneHasTheLock) {
  std::atomic<int> inside = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        try {
          const auto held = files_->lock("lock");
          EXPECT_EQ(inside.fetch_add(1), 0);
          taken.fetch_add(1);
          inside.fetch_sub(1);
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::kConflict) << e.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(taken.load(), 0);
  EXPECT_TRUE(names().empty());
}

TEST_P(AnyFileSystem, LocksHaveNamesLikeFiles) {
  EXPECT_EQ(error_of([&] { files_->lock("../lock"); }).code(), ErrorCode::kInvalidArgument);
}

TEST_P(AnyFileSystem, ListsByNameWithSizes) {
  write("b", "22");
  write("a", "1");
  EXPECT_EQ(files_->list(), (std::vector<FileEntry>{{"a", 1}, {"b", 2}}));
}

// Random pieces, aligned or not, from several threads, of a file of a few megabytes.
TEST_P(AnyFileSystem, PiecesFromManyThreadsArriveWhereTheyBelong) {
  if (!GetParam().can.ranged_writes) return GTEST_SUCCEED();
  constexpr std::size_t kSize = (3U << 20) + 777;
  Tensor source = Tensor::empty(DType::kUInt8, {kSize});
  std::mt19937 random(7);
  for (std::byte& b : source.bytes()) b = static_cast<std::byte>(random());
  std::vector<std::size_t> cuts = {0, kSize};
  for (int i = 0; i < 40; ++i)
    cuts.push_back(random() % kSize / (i % 2 == 0 ? 4096 : 1) * (i % 2 == 0 ? 4096 : 1));
  std::sort(cuts.begin(), cuts.end());
  auto file = files_->create("a", {.size = kSize});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = static_cast<std::size_t>(t); i + 1 < cuts.size(); i += 3)
        file->write_at(cuts[i], source.bytes().subspan(cuts[i], cuts[i + 1] - cuts[i]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  file->commit();

  const auto reader = files_->open("a");
  Tensor back = Tensor::zeros(DType::kUInt8, {kSize});
  threads.clear();
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = static_cast<std::size_t>(t); i + 1 < cuts.size(); i += 3)
        reader->read_at(cuts[i], back.bytes().subspan(cuts[i], cuts[i + 1] - cuts[i]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(std::memcmp(source.bytes().data(), back.bytes().data(), kSize), 0);
  Tensor whole = Tensor::zeros(DType::kUInt8, {kSize});
  reader->read_at(0, whole.bytes());
  EXPECT_EQ(std::memcmp(source.bytes().data(), whole.bytes().data(), kSize), 0);
}

}  // namespace
}  // namespace cairn
