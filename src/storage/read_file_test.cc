// A file on a disk as a ByteSource.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/open_file.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

class ReadFile : public testing::Test {
 protected:
  std::string file(const std::string& name, std::string_view text) { return folder_.write(name, text); }

  const TestFolder folder_;
};

std::string read(const ByteSource& source, std::uint64_t offset, std::size_t length) {
  std::string text(length, '?');
  source.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST_F(ReadFile, FileIsReadAtAnyPlace) {
  const std::string path = file("a", "0123456789");
  const auto source = open_file(path);
  EXPECT_EQ(source->size(), 10U);
  EXPECT_EQ(source->name(), path);
  EXPECT_EQ(read(*source, 3, 4), "3456");
  EXPECT_EQ(read(*source, 10, 0), "");
  EXPECT_EQ(read_all(*source), "0123456789");
}

TEST_F(ReadFile, EmptyFileHasNoBytes) { EXPECT_EQ(read_all(*open_file(file("empty", ""))), ""); }

TEST_F(ReadFile, MissingFileIsNotFound) {
  const Error e = error_of([&] { open_file(folder_ / "absent"); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_EQ(e.file(), folder_ / "absent");
}

TEST_F(ReadFile, FileBelowAFileIsNotFound) {
  const Error e = error_of([&] { open_file(file("a", "x") + "/b"); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
}

TEST_F(ReadFile, DirectoryIsAnIoError) {
  const Error e = error_of([&] { open_file(folder_.path()); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), EISDIR);
}

TEST_F(ReadFile, PipeIsRefusedWithoutWaitingForAWriter) {
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Error e = error_of([&] { open_file(path); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
}

TEST_F(ReadFile, ReadPastTheEndIsCorruptAndNamesThePlace) {
  const auto source = open_file(file("a", "0123456789"));
  for (const auto& [offset, length] :
       {std::pair<std::uint64_t, std::size_t>{8, 3}, {11, 0}, {UINT64_MAX, 2}}) {
    const Error e = error_of([&, at = offset, size = length] { read(*source, at, size); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
    EXPECT_EQ(e.offset(), offset);
    EXPECT_EQ(e.file(), source->name());
  }
}

TEST_F(ReadFile, FileCutWhileOpenIsCorrupt) {
  const std::string path = file("a", "0123456789");
  const auto source = open_file(path);
  fs::resize_file(path, 4);
  const Error e = error_of([&] { read(*source, 2, 6); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.offset(), 4U);
}

TEST_F(ReadFile, DescriptorIsClosedWithTheSource) {
  const std::string path = file("a", "x");
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  {
    const auto source = open_file(path);
    EXPECT_EQ(open_files(), before + 1);
    EXPECT_THROW(open_file(folder_.path()), Error);
    EXPECT_EQ(open_files(), before + 1);
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(ReadFile, ManyThreadsReadOneFile) {
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

TEST_F(ReadFile, SliceCountsErrorOffsetsFromItsOwnStart) {
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
