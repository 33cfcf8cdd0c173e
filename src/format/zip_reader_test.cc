// Archives that are read: what torch writes, other forms that mean the same, and records whose data is
// damaged.
#include <gtest/gtest.h>

#include "testing/zip_archive.h"
#include "testing/zip_plain_archive.h"

namespace cairn {
namespace zip_reader_test {

using namespace zip_test;

TEST(ZipReader, ReadsAnArchiveThatTorchWrote) {
  const std::string archive = small_archive();
  const ZipReader zip = open(archive);
  ASSERT_EQ(zip.entries().size(), 5U);
  EXPECT_EQ(zip.top_folder(), "archive");
  EXPECT_EQ(zip.entries()[0].name, "archive/data/0");
  EXPECT_EQ(zip.entries()[0].data_offset, 64U);
  EXPECT_EQ(zip.entries()[0].size, 4U);
  EXPECT_EQ(zip.entries()[0].stored_size, 4U);
  EXPECT_EQ(zip.entries()[0].crc, 0x8bb98613U);
  EXPECT_EQ(zip.entries()[1].name, "archive/empty");
  EXPECT_EQ(zip.entries()[1].size, 0U);
  EXPECT_EQ(zip.read(*zip.find("data/0"), 4), std::string("\0\1\2\3", 4));
  EXPECT_EQ(zip.read(*zip.find("byteorder"), 100), "little");
  EXPECT_EQ(zip.read(*zip.find("empty"), 0), "");
  for (const ZipEntry& entry : zip.entries()) EXPECT_TRUE(zip.verify(entry)) << entry.name;
}

TEST(ZipReader, FindTakesTheNameWithoutTheTopFolder) {
  const std::string archive = small_archive();
  const ZipReader zip = open(archive);
  EXPECT_EQ(zip.find(".data/serialization_id"), &zip.entries()[4]);
  EXPECT_EQ(zip.find("archive/data/0"), nullptr);
  EXPECT_EQ(zip.find(""), nullptr);
  EXPECT_EQ(zip.find("zzz"), nullptr);
}

TEST(ZipReader, AcceptsSizesInTheLocalHeaderWithoutZip64) {
  const std::string archive = Plain{{stored("a/x", "abc"), stored("a/y", ""), stored("a/z", "defg")}}.build();
  const ZipReader zip = open(archive);
  EXPECT_EQ(zip.read(*zip.find("z"), 100), "defg");
  EXPECT_TRUE(zip.verify(*zip.find("x")));
}

TEST(ZipReader, AcceptsAnEmptyRecordWithADescriptor) {
  const std::string archive = Plain{{stored("a/x", "", 8)}}.build();
  EXPECT_EQ(open(archive).entries()[0].size, 0U);
}

TEST(ZipReader, ReadsALargeArchiveThroughWindows) {
  std::string archive;
  {
    StringSink sink;
    ZipWriter writer(sink, "big", 4096);
    for (int i = 0; i < 3000; ++i)
      writer.add("data/" + std::to_string(i), as_bytes(std::string(i % 97, 'x')));
    writer.finish();
    archive = sink.text;
  }
  const ZipReader zip = open(archive);
  ASSERT_EQ(zip.entries().size(), 3000U);
  for (int i = 0; i < 3000; ++i) {
    const ZipEntry* entry = zip.find("data/" + std::to_string(i));
    ASSERT_NE(entry, nullptr) << i;
    EXPECT_EQ(entry->data_offset % 4096, 0U);
    EXPECT_EQ(zip.read(*entry, 100), std::string(i % 97, 'x'));
  }
}

TEST(ZipReader, AcceptsSaturatedFieldsOfTheEndRecord) {
  std::string archive = small_archive();
  const std::size_t end = archive.size() - 22;
  archive = with<std::uint32_t>(with<std::uint32_t>(archive, end + 12, ~0U), end + 16, ~0U);
  EXPECT_EQ(open(with<std::uint32_t>(archive, end + 8, ~0U)).entries().size(), 5U);
}

TEST(ZipReader, RefusesCompressedDataThatIsNotWhatItClaims) {
  const auto read = [](std::string data, std::uint64_t size) {
    const std::string archive = Plain{{{"a/x", std::move(data), 0, 8, size, ""}}}.build();
    const ZipReader zip = open(archive, with_deflate());
    zip.read(zip.entries()[0], 100);
  };
  const std::string good = deflate_raw("abc");
  EXPECT_NO_THROW(read(good, 3));
  EXPECT_THROW(read(good, 2), Error);                             // more comes out
  EXPECT_THROW(read(good, 4), Error);                             // less comes out
  EXPECT_THROW(read(good + "x", 3), Error);                       // input is left
  EXPECT_THROW(read(good.substr(0, good.size() - 1), 3), Error);  // input is cut off
  EXPECT_THROW(read("\xff\xff\xff\xff", 3), Error);               // no deflate data
  EXPECT_THROW(read(deflate_raw("abd"), 3), Error);               // another checksum
}

TEST(ZipReader, TellsWhenARecordHasNoChecksum) {
  std::string archive = with<std::uint32_t>(small_archive(), 72, 0);  // descriptor
  archive = with<std::uint32_t>(archive, kDirectoryAt + 16, 0);
  const ZipReader zip = open(archive);
  EXPECT_FALSE(zip.verify(zip.entries()[0]));
  EXPECT_EQ(zip.read(zip.entries()[0], 4).size(), 4U);
  ZipOptions strict;
  strict.strict_crc = true;
  EXPECT_EQ(refusal(archive, strict), ErrorCode::kUnsupported);
}

TEST(ZipReader, ReadAndVerifyFindChangedData) {
  std::string archive = small_archive();
  archive[65] ^= 4;
  const ZipReader zip = open(archive);
  EXPECT_THROW(zip.read(zip.entries()[0], 4), Error);
  EXPECT_THROW(zip.verify(zip.entries()[0]), Error);
}

TEST(ZipReader, ReadRefusesRecordsAboveTheCallersLimit) {
  const std::string archive = small_archive();
  const ZipReader zip = open(archive);
  try {
    zip.read(*zip.find("byteorder"), 5);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kLimit);
  }
}

}  // namespace zip_reader_test
}  // namespace cairn
