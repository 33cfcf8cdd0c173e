#include <gtest/gtest.h>
#include <zlib.h>

#include <functional>
#include <random>

#include "base/bytes.h"
#include "base/hash.h"
#include "cairn/error.h"
#include "format/zip.h"
#include "format/zip_test_archive.h"

namespace cairn {
namespace {

using zip_test::kDirectoryAt;
using zip_test::kSecondCentralAt;
using zip_test::torch_archive;

ZipReader open(const std::string& archive, const ZipOptions& options = {}, const Limits& limits = {}) {
  return ZipReader(memory_source(as_bytes(archive)), options, limits);
}

// The code of the error that opening gives; fails the test when there is none.
ErrorCode refusal(const std::string& archive, const ZipOptions& options = {}, const Limits& limits = {}) {
  try {
    open(archive, options, limits);
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "the archive is accepted";
  return ErrorCode::kInternal;
}

template <class T> std::string with(std::string archive, std::size_t at, T value) {
  store(archive.data() + at, value);
  return archive;
}

std::string with_text(std::string archive, std::size_t at, std::string_view text) {
  return archive.replace(at, text.size(), text);
}

// The same name in the local header and in the directory; both have 13 bytes.
std::string with_second_name(std::string_view name) {
  return with_text(with_text(torch_archive(), 84 + 30, name), kSecondCentralAt + 46, name);
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
constexpr ErrorCode kLimit = ErrorCode::kLimit;

// An archive put together field by field, in forms that torch does not write.
struct Plain {
  struct Record {
    std::string name, data;
    std::uint16_t flags = 0, method = 0;
    std::uint64_t size = 0;
    std::string local_extra;
  };
  std::vector<Record> records;

  template <class T> static void push(std::string& s, T v) {
    s.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  static void push_sums(std::string& s, const Record& r, std::uint32_t crc) {
    push(s, crc);
    push(s, static_cast<std::uint32_t>(r.data.size()));
    push(s, static_cast<std::uint32_t>(r.size));
  }

  // Sizes in the local headers, no zip64 records: as Python's zipfile writes small archives.
  std::string build() const {
    std::string all;
    std::string directory;
    for (const Record& r : records) {
      const auto offset = static_cast<std::uint32_t>(all.size());
      const std::uint32_t crc = r.method == 0 ? crc32(as_bytes(r.data)) : 0x352441c2;  // of "abc"
      const bool deferred = (r.flags & 8) != 0;
      all += "PK\3\4";
      push<std::uint16_t>(all, 20);
      push(all, r.flags);
      push(all, r.method);
      push<std::uint32_t>(all, 0x5a215a21);
      if (deferred) all.append(12, '\0');
      if (!deferred) push_sums(all, r, crc);
      push(all, static_cast<std::uint16_t>(r.name.size()));
      push(all, static_cast<std::uint16_t>(r.local_extra.size()));
      all += r.name + r.local_extra + r.data;
      if (deferred) {
        all += "PK\7\10";
        push_sums(all, r, crc);
      }
      directory += "PK\1\2";
      push<std::uint32_t>(directory, 0x00140314);
      push(directory, r.flags);
      push(directory, r.method);
      push<std::uint32_t>(directory, 0x5a215a21);
      push_sums(directory, r, crc);
      push(directory, static_cast<std::uint16_t>(r.name.size()));
      directory.append(8, '\0');
      push<std::uint32_t>(directory, 0x01a40000);
      push(directory, offset);
      directory += r.name;
    }
    const auto directory_at = static_cast<std::uint32_t>(all.size());
    all += directory;
    all += "PK\5\6";
    push<std::uint32_t>(all, 0);
    push(all, static_cast<std::uint16_t>(records.size()));
    push(all, static_cast<std::uint16_t>(records.size()));
    push(all, static_cast<std::uint32_t>(directory.size()));
    push(all, directory_at);
    push<std::uint16_t>(all, 0);
    return all;
  }
};

Plain::Record stored(std::string name, std::string data, std::uint16_t flags = 0) {
  const std::uint64_t size = data.size();
  return {std::move(name), std::move(data), flags, 0, size, ""};
}

std::string deflate_raw(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  std::string out(compressBound(text.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

ZipOptions with_deflate() {
  ZipOptions options;
  options.allow_deflate = true;
  return options;
}

TEST(ZipReader, ReadsAnArchiveThatTorchWrote) {
  const std::string archive = torch_archive();
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
  const std::string archive = torch_archive();
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

TEST(ZipReader, RefusesEveryTruncation) {
  const std::string archive = torch_archive();
  for (std::size_t n = 0; n < archive.size(); ++n) EXPECT_EQ(refusal(archive.substr(0, n)), kCorrupt) << n;
}

TEST(ZipReader, RefusesBytesBeforeAndAfter) {
  EXPECT_EQ(refusal(torch_archive() + '\0'), kCorrupt);
  EXPECT_EQ(refusal(std::string(1, '\0') + torch_archive()), kCorrupt);
  EXPECT_EQ(refusal(torch_archive() + torch_archive()), kCorrupt);
}

TEST(ZipReader, RefusesACommentOfTheArchive) {
  const std::string archive = torch_archive();
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, archive.size() - 2, 1) + "c"), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, archive.size() - 2, 1)), kCorrupt);
}

TEST(ZipReader, RefusesSeveralDisks) {
  const std::string archive = torch_archive();
  const std::size_t end = archive.size() - 22;
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, end + 4, 1)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, end + 8, 4)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end - 20 + 16, 2)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end - 20 - 56 + 16, 1)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 34, 1)), kUnsupported);
}

TEST(ZipReader, RefusesVersionsOfTheFormatThatNobodyReads) {
  const std::string archive = torch_archive();
  EXPECT_NO_THROW(open(with<std::uint8_t>(archive, kDirectoryAt + 6, 63)));
  EXPECT_EQ(refusal(with<std::uint8_t>(archive, kDirectoryAt + 6, 64)), kUnsupported);
}

TEST(ZipReader, RefusesEndRecordsThatDisagree) {
  const std::string archive = torch_archive();
  const std::size_t end = archive.size() - 22;
  const std::size_t end64 = end - 20 - 56;
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end + 8, 0x00040004)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end + 12, 1)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end + 16, 1)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint64_t>(archive, end - 20 + 8, 1)), kCorrupt);  // locator
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end64, 0)), kCorrupt);         // signature
  EXPECT_EQ(refusal(with<std::uint64_t>(archive, end64 + 4, 45)), kCorrupt);    // length
  EXPECT_EQ(refusal(with<std::uint64_t>(archive, end64 + 40, 1ULL << 63)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint64_t>(archive, end64 + 48, ~0ULL)), kCorrupt);
}

TEST(ZipReader, AcceptsSaturatedFieldsOfTheEndRecord) {
  std::string archive = torch_archive();
  const std::size_t end = archive.size() - 22;
  archive = with<std::uint32_t>(with<std::uint32_t>(archive, end + 12, ~0U), end + 16, ~0U);
  EXPECT_EQ(open(with<std::uint32_t>(archive, end + 8, ~0U)).entries().size(), 5U);
}

TEST(ZipReader, RefusesMoreRecordsThanAllowed) {
  ZipOptions options;
  options.max_entries = 4;
  EXPECT_EQ(refusal(torch_archive(), options), kLimit);
  options.max_entries = 5;
  const std::string archive = torch_archive();
  EXPECT_EQ(open(archive, options).entries().size(), 5U);
}

TEST(ZipReader, RefusesMoreRecordsThanTheDirectoryCanHold) {
  std::string archive = torch_archive();
  const std::size_t end = archive.size() - 22;
  archive = with<std::uint32_t>(archive, end + 8, ~0U);
  for (const std::size_t at : {end - 76 + 24, end - 76 + 32})
    archive = with<std::uint64_t>(archive, at, 900'000);
  EXPECT_EQ(refusal(archive), kCorrupt);
}

TEST(ZipReader, RefusesAnArchiveWithoutRecords) { EXPECT_EQ(refusal(Plain{}.build()), kCorrupt); }

TEST(ZipReader, RefusesLessRecordsThanTheDirectoryHolds) {
  std::string archive = torch_archive();
  const std::size_t end = archive.size() - 22;
  archive = with<std::uint32_t>(archive, end + 8, 0x00040004);
  for (const std::size_t at : {end - 76 + 24, end - 76 + 32}) archive = with<std::uint64_t>(archive, at, 4);
  EXPECT_EQ(refusal(archive), kCorrupt);
}

TEST(ZipReader, RefusesBadDirectoryRecords) {
  const std::string archive = torch_archive();
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kDirectoryAt, 0)), kCorrupt);           // signature
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 28, 60000)), kCorrupt);  // name length
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 30, 3)), kCorrupt);      // extra length
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 32, 1)), kCorrupt);      // comment
}

TEST(ZipReader, RefusesGapsAndOverlaps) {
  const std::string archive = torch_archive();
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kDirectoryAt + 42, 1)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kSecondCentralAt + 42, 0)), kCorrupt);  // twice the first
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kSecondCentralAt + 42, 85)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kSecondCentralAt + 42, 1 << 30)), kCorrupt);
  std::string hole = torch_archive();  // a hidden byte between the last record and the directory
  hole.insert(kDirectoryAt, 1, 'x');
  const std::size_t end = hole.size() - 22;
  hole = with<std::uint32_t>(hole, end + 16, kDirectoryAt + 1);
  hole = with<std::uint64_t>(hole, end - 76 + 48, kDirectoryAt + 1);
  hole = with<std::uint64_t>(hole, end - 20 + 8, end - 76);
  EXPECT_EQ(refusal(hole), kCorrupt);
}

TEST(ZipReader, RefusesARecordThatRunsIntoTheDirectory) {
  std::string archive = Plain{{stored("a/x", "abc")}}.build();
  for (const std::size_t at : {18U, 22U, 36U + 20U, 36U + 24U})
    archive = with<std::uint32_t>(archive, at, 1 << 20);
  EXPECT_EQ(refusal(archive), kCorrupt);
}

TEST(ZipReader, RefusesLocalHeadersThatAreNotTheDirectorys) {
  const std::string archive = torch_archive();
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, 0, 0)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, 6, 0x0008)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, 8, 8)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, 14, 1)), kCorrupt);  // CRC neither 0 nor the same
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, 18, 5)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, 22, 5)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, 26, 13)), kCorrupt);
  EXPECT_EQ(refusal(with_text(archive, 30, "archive/data/1")), kCorrupt);
  EXPECT_EQ(open(with<std::uint32_t>(archive, 22, 4)).entries().size(), 5U);
}

TEST(ZipReader, RefusesZeroSizesWithoutADescriptor) {
  std::string archive = Plain{{stored("a/x", "abc")}}.build();
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, 18, 0)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, 14, 0)), kCorrupt);
}

TEST(ZipReader, RefusesDescriptorsThatAreNotTheDirectorys) {
  const std::string archive = torch_archive();
  for (const std::size_t at : {68U, 72U, 76U, 80U})
    EXPECT_EQ(refusal(with<std::uint32_t>(archive, at, 99)), kCorrupt) << at;
}

TEST(ZipReader, RefusesExtraFieldsThatAreCutOff) {
  EXPECT_EQ(refusal(with<std::uint16_t>(torch_archive(), 30 + 14 + 2, 1000)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(torch_archive(), 30 + 14 + 2, 13)), kCorrupt);
}

TEST(ZipReader, ChecksTheZip64FieldOfLocalHeaders) {
  const auto with_extra = [](const std::string& extra, std::uint16_t flags) {
    Plain::Record record = stored("a/x", "abc", flags);
    record.local_extra = extra;
    return Plain{{record}}.build();
  };
  const auto number = [](std::uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); };
  const std::string sizes("\1\0\20\0", 4);
  const std::string offset("\1\0\10\0", 4);
  EXPECT_EQ(open(with_extra(sizes + number(3) + number(3), 0)).entries().size(), 1U);
  EXPECT_EQ(open(with_extra(offset + number(0), 0)).entries().size(), 1U);
  EXPECT_EQ(refusal(with_extra(sizes + number(3) + number(4), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(sizes + number(3) + number(0), 0)), kCorrupt);  // 0 needs a descriptor
  EXPECT_EQ(refusal(with_extra(offset + number(1), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(std::string("\1\0\0\0", 4), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(std::string("\1\0\4\0abcd", 8), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(offset + number(0) + offset + number(0), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(sizes + number(3) + number(0), 8)), kCorrupt);  // descriptor is not wide
}

TEST(ZipReader, RefusesAZip64FieldOfTheDirectoryThatHoldsTooMuchOrTooLittle) {
  std::string archive = Plain{{stored("a/x", "abc")}}.build();
  const std::size_t central = archive.size() - 22 - 46 - 3;
  const auto with_extra = [&](const std::string& extra) {
    std::string changed =
        with<std::uint16_t>(archive, central + 30, static_cast<std::uint16_t>(extra.size()));
    changed.insert(central + 46 + 3, extra);
    return with<std::uint32_t>(changed, changed.size() - 10,
                               static_cast<std::uint32_t>(46 + 3 + extra.size()));
  };
  const std::string zero(8, '\0');
  EXPECT_EQ(refusal(with_extra(std::string("\1\0\10\0", 4) + zero)), kCorrupt);
  archive = with<std::uint32_t>(archive, central + 42, ~0U);  // the offset is in the extra field
  EXPECT_EQ(open(with_extra(std::string("\1\0\10\0", 4) + zero)).entries().size(), 1U);
  EXPECT_EQ(refusal(with_extra(std::string("\1\0\20\0", 4) + zero + zero)), kCorrupt);
  EXPECT_EQ(refusal(with_extra("")), kCorrupt);
}

TEST(ZipReader, RefusesNamesThatCouldLeaveTheFolderOrBeReadInTwoWays) {
  EXPECT_EQ(open(with_second_name("archive/emp.y")).entries().size(), 5U);
  for (const std::string_view name :
       {"archive/../xy", "/rchive/empty", "archive\\empty", "archive/e\0pty", "brchive/empty",
        "archive/empt/", "archive//mpty", "archive/./xyz", "archive_empty", "archive/emp\xfft"}) {
    const std::string_view whole(name.data(), 13);
    EXPECT_EQ(refusal(with_second_name(whole)), kCorrupt) << whole;
  }
}

TEST(ZipReader, RefusesNamesBeyondAsciiThatAreNotMarkedAsUtf8) {
  const std::string name = "a/\xc3\xa4";
  EXPECT_EQ(refusal(Plain{{stored(name, "abc")}}.build()), kCorrupt);
  const std::string marked = Plain{{stored(name, "abc", 0x0800)}}.build();
  EXPECT_NE(open(marked).find("\xc3\xa4"), nullptr);
}

TEST(ZipReader, RefusesNamesLongerThanAllowed) {
  Limits limits;
  limits.zip_name_bytes = 29;
  EXPECT_EQ(refusal(torch_archive(), {}, limits), kLimit);
  limits.zip_name_bytes = 30;
  const std::string archive = torch_archive();
  EXPECT_EQ(open(archive, {}, limits).entries().size(), 5U);
}

TEST(ZipReader, RefusesTwoRecordsOfOneName) {
  EXPECT_EQ(refusal(Plain{{stored("a/x", "abc"), stored("a/y", "d"), stored("a/x", "abc")}}.build()),
            kCorrupt);
  Plain many;
  for (int i = 0; i < 200; ++i) many.records.push_back(stored("a/" + std::to_string(i % 199), "abc"));
  EXPECT_EQ(refusal(many.build()), kCorrupt);
}

TEST(ZipReader, RefusesEncryptionAndUnknownFlags) {
  for (const std::uint16_t flags : {0x0001, 0x0020, 0x0040, 0x2000, 0x0002}) {
    EXPECT_EQ(refusal(Plain{{stored("a/x", "abc", flags)}}.build()), kUnsupported) << flags;
  }
}

TEST(ZipReader, RefusesCompressionUnlessAskedFor) {
  const std::string archive = Plain{{{"a/x", deflate_raw("abc"), 0, 8, 3, ""}}}.build();
  EXPECT_EQ(refusal(archive), kUnsupported);
  const ZipReader zip = open(archive, with_deflate());
  EXPECT_EQ(zip.read(zip.entries()[0], 3), "abc");
  EXPECT_TRUE(zip.verify(zip.entries()[0]));
  EXPECT_EQ(refusal(Plain{{{"a/x", "abc", 0, 12, 3, ""}}}.build(), with_deflate()), kUnsupported);
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

TEST(ZipReader, RefusesARatioAboveTheLimit) {
  const auto archive = [](std::uint64_t size) { return Plain{{{"a/x", "abc", 0, 8, size, ""}}}.build(); };
  EXPECT_EQ(refusal(archive(301), with_deflate()), kLimit);
  const std::string inside = archive(300);
  EXPECT_EQ(open(inside, with_deflate()).entries()[0].size, 300U);
}

TEST(ZipReader, RefusesStoredRecordsWithTwoSizes) {
  EXPECT_EQ(refusal(Plain{{{"a/x", "abc", 0, 0, 4, ""}}}.build()), kCorrupt);
}

TEST(ZipReader, TellsWhenARecordHasNoChecksum) {
  std::string archive = with<std::uint32_t>(torch_archive(), 72, 0);  // descriptor
  archive = with<std::uint32_t>(archive, kDirectoryAt + 16, 0);
  const ZipReader zip = open(archive);
  EXPECT_FALSE(zip.verify(zip.entries()[0]));
  EXPECT_EQ(zip.read(zip.entries()[0], 4).size(), 4U);
  ZipOptions strict;
  strict.strict_crc = true;
  EXPECT_EQ(refusal(archive, strict), kUnsupported);
}

TEST(ZipReader, RefusesAChecksumOnAnEmptyRecord) {
  EXPECT_EQ(refusal(with<std::uint32_t>(torch_archive(), kSecondCentralAt + 16, 1)), kCorrupt);
}

TEST(ZipReader, ReadAndVerifyFindChangedData) {
  std::string archive = torch_archive();
  archive[65] ^= 4;
  const ZipReader zip = open(archive);
  EXPECT_THROW(zip.read(zip.entries()[0], 4), Error);
  EXPECT_THROW(zip.verify(zip.entries()[0]), Error);
}

TEST(ZipReader, ReadRefusesRecordsAboveTheCallersLimit) {
  const std::string archive = torch_archive();
  const ZipReader zip = open(archive);
  try {
    zip.read(*zip.find("byteorder"), 5);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), kLimit);
  }
}

// Whatever is changed, the answer is an Error or an archive whose records lie inside.
TEST(ZipReader, AnswersChangedBytesWithATypedErrorOrSoundEntries) {
  constexpr unsigned kSeed = 20261115;
  std::mt19937 random(kSeed);
  const std::string original = torch_archive();
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string archive = original;
    for (unsigned k = random() % 3 + 1; k > 0; --k)
      archive[random() % archive.size()] = static_cast<char>(random());
    try {
      const ZipReader zip = open(archive, with_deflate());
      ++accepted;
      for (const ZipEntry& entry : zip.entries()) {
        ASSERT_LE(entry.data_offset + entry.stored_size, archive.size())
            << "seed " << kSeed << " round " << round;
      }
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 100);  // changes of data, padding and dates
}

}  // namespace
}  // namespace cairn
