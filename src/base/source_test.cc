#include "base/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "cairn/error.h"
#include "testing/errors.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// A directory that goes away with the test.
class Source : public testing::Test {
 protected:
  Source() {
    std::string pattern = fs::temp_directory_path() / "cairn-source-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~Source() override { fs::remove_all(root_); }

  std::string file(const std::string& name, std::string_view text) {
    const std::string path = root_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  fs::path root_;
};

std::string read(const ByteSource& source, std::uint64_t offset, std::size_t length) {
  std::string text(length, '?');
  source.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST_F(Source, FileIsReadAtAnyPlace) {
  const std::string path = file("a", "0123456789");
  const auto source = open_file(path);
  EXPECT_EQ(source->size(), 10U);
  EXPECT_EQ(source->name(), path);
  EXPECT_EQ(read(*source, 3, 4), "3456");
  EXPECT_EQ(read(*source, 10, 0), "");
  EXPECT_EQ(read_all(*source), "0123456789");
}

TEST_F(Source, EmptyFileHasNoBytes) { EXPECT_EQ(read_all(*open_file(file("empty", ""))), ""); }

TEST_F(Source, MissingFileIsNotFound) {
  const Error e = error_of([&] { open_file(root_ / "absent"); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_EQ(e.os_error(), ENOENT);
  EXPECT_EQ(e.file(), root_ / "absent");
}

TEST_F(Source, FileBelowAFileIsNotFound) {
  const Error e = error_of([&] { open_file(file("a", "x") + "/b"); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_EQ(e.os_error(), ENOTDIR);
}

TEST_F(Source, DirectoryIsAnIoError) {
  const Error e = error_of([&] { open_file(root_); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), EISDIR);
}

TEST_F(Source, PipeIsRefusedWithoutWaitingForAWriter) {
  const std::string path = root_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Error e = error_of([&] { open_file(path); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
}

TEST_F(Source, ReadPastTheEndIsCorruptAndNamesThePlace) {
  const auto source = open_file(file("a", "0123456789"));
  for (const auto& [offset, length] :
       {std::pair<std::uint64_t, std::size_t>{8, 3}, {11, 0}, {UINT64_MAX, 2}}) {
    const Error e = error_of([&] { read(*source, offset, length); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
    EXPECT_EQ(e.offset(), offset);
    EXPECT_EQ(e.file(), source->name());
  }
}

TEST_F(Source, FileCutWhileOpenIsCorrupt) {
  const std::string path = file("a", "0123456789");
  const auto source = open_file(path);
  fs::resize_file(path, 4);
  const Error e = error_of([&] { read(*source, 2, 6); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.offset(), 4U);
}

TEST_F(Source, DescriptorIsClosedWithTheSource) {
  const std::string path = file("a", "x");
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  {
    const auto source = open_file(path);
    EXPECT_EQ(open_files(), before + 1);
    EXPECT_THROW(open_file(root_), Error);
    EXPECT_EQ(open_files(), before + 1);
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(Source, ManyThreadsReadOneFile) {
  std::string text(1 << 20, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 256);
  const auto source = open_file(file("a", text));
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t at = t * 1000; at + 5000 < text.size(); at += 50'000) {
        same[t] += read(*source, at, 5000) == text.substr(at, 5000) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 0));
}

TEST(MemorySource, ReadsAndRefusesPastTheEnd) {
  const std::string text = "hello";
  const auto source = memory_source(as_bytes(text), "greeting");
  EXPECT_EQ(source->name(), "greeting");
  EXPECT_EQ(read(*source, 1, 3), "ell");
  EXPECT_EQ(error_of([&] { read(*source, 3, 3); }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(read_all(*memory_source({})), "");
}

TEST(SliceSource, SeesOnlyItsPart) {
  const std::string text = "0123456789";
  const auto slice = slice_of(memory_source(as_bytes(text), "digits"), 2, 5);
  EXPECT_EQ(slice->size(), 5U);
  EXPECT_EQ(slice->name(), "digits");
  EXPECT_EQ(read_all(*slice), "23456");
  EXPECT_EQ(read_all(*slice_of(slice, 1, 2)), "34");
  const Error e = error_of([&] { read(*slice, 4, 2); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.offset(), 4U);
}

TEST(SliceSource, MustLieInItsSource) {
  const auto source = memory_source(as_bytes("0123456789"));
  EXPECT_NO_THROW(slice_of(source, 10, 0));
  for (const auto& [offset, length] :
       {std::pair<std::uint64_t, std::uint64_t>{11, 0}, {0, 11}, {5, 6}, {5, UINT64_MAX}, {UINT64_MAX, 5}}) {
    EXPECT_EQ(error_of([&] { slice_of(source, offset, length); }).code(), ErrorCode::kCorrupt);
  }
}

TEST_F(Source, SliceCountsErrorOffsetsFromItsOwnStart) {
  const std::string path = file("a", "0123456789");
  const auto slice = slice_of(open_file(path), 3, 7);
  fs::resize_file(path, 5);
  const Error e = error_of([&] { read_all(*slice); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.offset(), 2U);
  EXPECT_EQ(e.file(), path);
}

}  // namespace
}  // namespace cairn
