// Compressed records that are larger than the buffers they pass through.
#include <gtest/gtest.h>

#include "format/zip.h"
#include "testing/errors.h"
#include "testing/zip_plain_archive.h"

namespace cairn {
namespace zip_record_test {

using zip_test::deflate_raw;
using zip_test::Plain;

std::string archive_of(std::string deflated, const std::string& text) {
  Plain::Record record{"a/x", std::move(deflated), 0, 8, text.size(), "", crc32(as_bytes(text))};
  return Plain{{std::move(record)}}.build();
}

std::string read_back(const std::string& archive) {
  ZipOptions options;
  options.allow_deflate = true;
  const ZipReader zip(memory_source(as_bytes(archive)), options);
  EXPECT_TRUE(zip.verify(zip.entries()[0]));
  return zip.read(zip.entries()[0], UINT64_MAX);
}

std::string counting(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; text.size() < size; ++i) text += std::to_string(i * i) + " ";
  text.resize(size);
  return text;
}

TEST(ZipRecord, CompressedDataOfAnySizeComeOutWhole) {
  constexpr std::size_t kBuffer = 16384;
  for (const std::size_t size : {kBuffer - 1, kBuffer, kBuffer + 1, 2 * kBuffer, 5 * kBuffer + 7}) {
    const std::string text = counting(size);
    EXPECT_EQ(read_back(archive_of(deflate_raw(text), text)), text) << size;
  }
}

// Deflate blocks without compression, of 64 bytes each with the five of its header.
std::string blocks_of_64(std::string_view text) {
  std::string all;
  for (std::size_t at = 0; at < text.size(); at += 59) {
    const std::string_view part = text.substr(at, 59);
    const auto length = static_cast<std::uint16_t>(part.size());
    all.push_back(at + 59 >= text.size() ? '\1' : '\0');  // the last one says so
    Plain::push(all, length);
    Plain::push(all, static_cast<std::uint16_t>(~length));
    all += part;
  }
  return all;
}

// A piece of 1 MiB is read at a time. After 2^14 blocks it ends together with the buffer for what comes out.
TEST(ZipRecord, APieceMayEndWhereTheBufferIsFull) {
  const std::string text = counting(59 * (16384 + 10));
  const std::string deflated = blocks_of_64(text);
  EXPECT_EQ(read_back(archive_of(deflated, text)), text);
  const std::string cut = archive_of(deflated.substr(0, 64 * 16384), text);
  const Error e = error_of([&] { read_back(cut); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "ends before its compressed data does")) << e.what();
}

TEST(ZipRecord, DataThatAreNotCompressedDataAreSaidToBeNone) {
  const std::string text = counting(40000);
  const std::string deflated =
      blocks_of_64(text).substr(0, 640) + std::string(100, '\6');  // no kind of block
  const Error e = error_of([&] { read_back(archive_of(deflated, text)); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "is not valid deflate data")) << e.what();
}

}  // namespace zip_record_test
}  // namespace cairn
