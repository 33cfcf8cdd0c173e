// Archives that are refused when they are opened, each for one reason.
#include <gtest/gtest.h>

#include <random>

#include "testing/zip_archive.h"
#include "testing/zip_plain_archive.h"

namespace cairn {
namespace zip_refusal_test {

using namespace zip_test;

constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
constexpr ErrorCode kLimit = ErrorCode::kLimit;

// The same name in the local header and in the directory; both have 13 bytes.
std::string with_second_name(std::string_view name) {
  return with_text(with_text(small_archive(), 84 + 30, name), kSecondCentralAt + 46, name);
}

TEST(ZipReader, RefusesEveryTruncation) {
  const std::string archive = small_archive();
  for (std::size_t n = 0; n < archive.size(); ++n) EXPECT_EQ(refusal(archive.substr(0, n)), kCorrupt) << n;
}

TEST(ZipReader, SaysWhereTheEndRecordShouldBe) {
  EXPECT_EQ(error_of([] { open("PK"); }).offset(), 0U);
  EXPECT_EQ(error_of([] { open(std::string(30, 'x')); }).offset(), 8U);
}

TEST(ZipReader, RefusesBytesBeforeAndAfter) {
  EXPECT_EQ(refusal(small_archive() + '\0'), kCorrupt);
  EXPECT_EQ(refusal(std::string(1, '\0') + small_archive()), kCorrupt);
  EXPECT_EQ(refusal(small_archive() + small_archive()), kCorrupt);
}

TEST(ZipReader, RefusesACommentOfTheArchive) {
  const std::string archive = small_archive();
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, archive.size() - 2, 1) + "c"), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, archive.size() - 2, 1)), kCorrupt);
}

TEST(ZipReader, RefusesSeveralDisks) {
  const std::string archive = small_archive();
  const std::size_t end = archive.size() - 22;
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, end + 4, 1)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, end + 8, 4)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end - 20 + 16, 2)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, end - 20 - 56 + 16, 1)), kUnsupported);
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 34, 1)), kUnsupported);
}

TEST(ZipReader, RefusesVersionsOfTheFormatThatNobodyReads) {
  const std::string archive = small_archive();
  EXPECT_NO_THROW(open(with<std::uint8_t>(archive, kDirectoryAt + 6, 63)));
  EXPECT_EQ(refusal(with<std::uint8_t>(archive, kDirectoryAt + 6, 64)), kUnsupported);
}

TEST(ZipReader, RefusesEndRecordsThatDisagree) {
  const std::string archive = small_archive();
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

TEST(ZipReader, RefusesMoreRecordsThanAllowed) {
  ZipOptions options;
  options.max_entries = 4;
  EXPECT_EQ(refusal(small_archive(), options), kLimit);
  options.max_entries = 5;
  const std::string archive = small_archive();
  EXPECT_EQ(open(archive, options).entries().size(), 5U);
}

TEST(ZipReader, RefusesMoreRecordsThanTheDirectoryCanHold) {
  std::string archive = small_archive();
  const std::size_t end = archive.size() - 22;
  archive = with<std::uint32_t>(archive, end + 8, ~0U);
  for (const std::size_t at : {end - 76 + 24, end - 76 + 32})
    archive = with<std::uint64_t>(archive, at, 900'000);
  EXPECT_EQ(refusal(archive), kCorrupt);
}

TEST(ZipReader, RefusesAnArchiveWithoutRecords) { EXPECT_EQ(refusal(Plain{}.build()), kCorrupt); }

TEST(ZipReader, RefusesLessRecordsThanTheDirectoryHolds) {
  std::string archive = small_archive();
  const std::size_t end = archive.size() - 22;
  archive = with<std::uint32_t>(archive, end + 8, 0x00040004);
  for (const std::size_t at : {end - 76 + 24, end - 76 + 32}) archive = with<std::uint64_t>(archive, at, 4);
  EXPECT_EQ(refusal(archive), kCorrupt);
}

TEST(ZipReader, RefusesBadDirectoryRecords) {
  const std::string archive = small_archive();
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kDirectoryAt, 0)), kCorrupt);           // signature
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 28, 60000)), kCorrupt);  // name length
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 30, 3)), kCorrupt);      // extra length
  EXPECT_EQ(refusal(with<std::uint16_t>(archive, kDirectoryAt + 32, 1)), kCorrupt);      // comment
}

TEST(ZipReader, RefusesGapsAndOverlaps) {
  const std::string archive = small_archive();
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kDirectoryAt + 42, 1)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kSecondCentralAt + 42, 0)), kCorrupt);  // twice the first
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kSecondCentralAt + 42, 85)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint32_t>(archive, kSecondCentralAt + 42, 1 << 30)), kCorrupt);
  std::string hole = small_archive();  // a hidden byte between the last record and the directory
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
  const std::string archive = small_archive();
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
  const std::string archive = small_archive();
  for (const std::size_t at : {68U, 72U, 76U, 80U})
    EXPECT_EQ(refusal(with<std::uint32_t>(archive, at, 99)), kCorrupt) << at;
}

TEST(ZipReader, RefusesExtraFieldsThatAreCutOff) {
  EXPECT_EQ(refusal(with<std::uint16_t>(small_archive(), 30 + 14 + 2, 1000)), kCorrupt);
  EXPECT_EQ(refusal(with<std::uint16_t>(small_archive(), 30 + 14 + 2, 13)), kCorrupt);
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
  const std::string both("\1\0\30\0", 4);
  EXPECT_EQ(open(with_extra(both + number(3) + number(3) + number(0), 0)).entries().size(), 1U);
  EXPECT_EQ(refusal(with_extra(both + number(3) + number(3) + number(1), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(both + number(4) + number(3) + number(0), 0)), kCorrupt);
  EXPECT_EQ(refusal(with_extra(std::string("\1\0\27\0", 4) + std::string(23, '\3'), 0)), kCorrupt);
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
  EXPECT_EQ(refusal(small_archive(), {}, limits), kLimit);
  limits.zip_name_bytes = 30;
  const std::string archive = small_archive();
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

TEST(ZipReader, RefusesARatioAboveTheLimit) {
  const auto archive = [](std::uint64_t size) { return Plain{{{"a/x", "abc", 0, 8, size, ""}}}.build(); };
  EXPECT_EQ(refusal(archive(301), with_deflate()), kLimit);
  const std::string inside = archive(300);
  EXPECT_EQ(open(inside, with_deflate()).entries()[0].size, 300U);
}

TEST(ZipReader, RefusesStoredRecordsWithTwoSizes) {
  EXPECT_EQ(refusal(Plain{{{"a/x", "abc", 0, 0, 4, ""}}}.build()), kCorrupt);
}

TEST(ZipReader, RefusesAChecksumOnAnEmptyRecord) {
  EXPECT_EQ(refusal(with<std::uint32_t>(small_archive(), kSecondCentralAt + 16, 1)), kCorrupt);
}

// Whatever is changed, the answer is an Error or an archive whose records lie inside.
TEST(ZipReader, AnswersChangedBytesWithATypedErrorOrSoundEntries) {
  constexpr unsigned kSeed = 20261115;
  std::mt19937 random(kSeed);
  const std::string original = small_archive();
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

}  // namespace zip_refusal_test
}  // namespace cairn
