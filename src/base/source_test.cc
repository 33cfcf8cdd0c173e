#include "base/source.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cairn/error.h"
#include "testing/errors.h"

namespace cairn {
namespace {

std::string read(const ByteSource& source, std::uint64_t offset, std::size_t length) {
  std::string text(length, '?');
  source.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
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
    EXPECT_EQ(error_of([&, offset = offset, length = length] { slice_of(source, offset, length); }).code(),
              ErrorCode::kCorrupt);
  }
}

TEST(SliceSource, CountsErrorOffsetsFromItsOwnStart) {
  const std::string text = "0123456789";
  const auto slice = slice_of(slice_of(memory_source(as_bytes(text)), 0, 10), 3, 7);
  EXPECT_EQ(error_of([&] { read(*slice, 6, 2); }).offset(), 6U);
}

}  // namespace
}  // namespace cairn
