#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "cairn/error.h"
#include "format/zip.h"
#include "testing/zip_archive.h"

namespace cairn {
namespace zip_writer_test {

// Keeps the headers of an archive too large for memory: appends of up to 64 KiB, by their place.
class HeaderSink final : public ByteSink {
 public:
  void append(ByteSpan bytes) override {
    if (bytes.size() <= 64 << 10) pieces.emplace_back(position, std::string(as_text(bytes)));
    position += bytes.size();
  }
  std::vector<std::pair<std::uint64_t, std::string>> pieces;
  std::uint64_t position = 0;
};

TEST(ZipWriter, WritesTheBytesThatTorchWrites) {
  StringSink sink;
  ZipWriter zip(sink);
  zip.add("data/0", as_bytes(std::string_view("\0\1\2\3", 4)));
  zip.add("empty", {});
  zip.add("version", as_bytes("3\n"));
  zip.add("byteorder", as_bytes("little"));
  zip.add(".data/serialization_id", as_bytes("0826812500757367926900000020834154013723"));
  const std::uint64_t bytes = zip.finish();
  EXPECT_EQ(bytes, sink.text.size());
  EXPECT_EQ(sink.text, zip_test::small_archive());
}

TEST(ZipWriter, WritesTheSameInPiecesAndWithAKnownChecksum) {
  StringSink sink;
  ZipWriter zip(sink);
  zip.begin("data/0", 4);
  zip.append(as_bytes(std::string_view("\0", 1)));
  zip.append({});
  zip.append(as_bytes("\1\2\3"));
  zip.end();
  zip.begin("empty", 0);
  zip.end();
  zip.begin("version", 2, false);
  zip.append(as_bytes("3\n"));
  zip.end_with_crc(crc32(as_bytes("3\n")));
  zip.add("byteorder", as_bytes("little"));
  zip.add(".data/serialization_id", as_bytes("0826812500757367926900000020834154013723"));
  zip.finish();
  EXPECT_EQ(sink.text, zip_test::small_archive());
}

TEST(ZipWriter, AlignsDataForEveryAlignmentAndIsReadBack) {
  for (const std::uint64_t alignment : {1U, 2U, 24U, 64U, 512U, 4096U, 32768U}) {
    StringSink sink;
    ZipWriter zip(sink, "top", alignment);
    for (int i = 0; i < 20; ++i) zip.add("data/" + std::to_string(i), as_bytes(std::string(i * 7, 'q')));
    zip.finish();
    const ZipReader reader(memory_source(as_bytes(sink.text)), {});
    ASSERT_EQ(reader.entries().size(), 20U);
    for (const ZipEntry& entry : reader.entries()) {
      EXPECT_EQ(entry.data_offset % alignment, 0U);
      EXPECT_TRUE(reader.verify(entry));
    }
  }
}

// The bytes are those of torch's own writer for records of these sizes.
TEST(ZipWriter, WritesZip64FieldsForLargeRecordsAndFarOffsets) {
  HeaderSink sink;
  ZipWriter zip(sink);
  zip.add("small", as_bytes("abc"));
  const std::vector<std::byte> megabyte(1 << 20);
  const std::uint64_t size = 0xffffffff;
  zip.begin("big", size, false);
  for (std::uint64_t left = size; left > 0;) {
    const std::uint64_t n = std::min<std::uint64_t>(left, megabyte.size());
    zip.append({megabyte.data(), n});
    left -= n;
  }
  zip.end_with_crc(0);
  zip.add("late", as_bytes("xyz"));
  zip.add("empty", {});
  zip.finish();
  const auto at = [&](std::uint64_t offset) -> std::string {
    for (const auto& [place, text] : sink.pieces) {
      if (place == offset) return text;
    }
    return "nothing";
  };
  using zip_test::from_hex;
  EXPECT_EQ(at(83), from_hex("504b0304000008080000000000000000000000000000000000000b004400") + "archive/big" +
                        from_hex("01001000ffffffff00000000000000000000000046422c00") + std::string(44, 'Z'));
  EXPECT_EQ(at(4294967487), from_hex("504b070800000000ffffffff00000000ffffffff00000000"));
  EXPECT_EQ(at(4294967511), from_hex("504b0304000008080000000000000000000000000000000000000c003f00") +
                                "archive/late" + from_hex("01000800d70000000100000046422f00") +
                                std::string(47, 'Z'));
  EXPECT_EQ(at(4294967619), from_hex("504b070867ba8eeb03000000000000000300000000000000"));
  EXPECT_EQ(at(4294967643), from_hex("504b0304000000080000000000000000000000000000000000000d003a00") +
                                "archive/empty" + from_hex("010008005b0100000100000046422a00") +
                                std::string(42, 'Z'));
  const std::uint64_t directory = 4294967744;
  EXPECT_EQ(at(directory + 59),
            from_hex("504b010200000000080800000000000000000000ffffffffffffffff0b0014000000000000"
                     "000000000053000000") +
                "archive/big" + from_hex("01001000ffffffff00000000ffffffff00000000"));
  EXPECT_EQ(at(directory + 59 + 77),
            from_hex("504b010200000000080800000000000067ba8eeb03000000030000000c000c00000000"
                     "00000000000000ffffffff") +
                "archive/late" + from_hex("01000800d700000001000000"));
}

TEST(ZipWriter, RefusesMisuse) {
  StringSink sink;
  const auto throws = [](auto action) {
    try {
      action();
      return false;
    } catch (const Error& e) {
      return e.code() == ErrorCode::kInvalidArgument;
    }
  };
  EXPECT_TRUE(throws([&] { ZipWriter(sink, "a", 0); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink, "a", 32769); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink, "a/b"); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink, "").add("x", {}); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink, "..").add("x", {}); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink).add("", {}); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink).add("a\\b", {}); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink).add(std::string(505, 'n'), {}); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink).finish(); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink).append(as_bytes("x")); }));
  EXPECT_TRUE(throws([&] { ZipWriter(sink).end(); }));
  ZipWriter zip(sink);
  zip.begin("x", 2);
  EXPECT_TRUE(throws([&] { zip.begin("y", 2); }));
  EXPECT_TRUE(throws([&] { zip.append(as_bytes("abc")); }));
  EXPECT_TRUE(throws([&] { zip.end(); }));
  EXPECT_TRUE(throws([&] { zip.finish(); }));
  zip.append(as_bytes("ab"));
  zip.end();
  zip.begin("y", 1, false);
  zip.append(as_bytes("c"));
  EXPECT_TRUE(throws([&] { zip.end(); }));
  zip.end_with_crc(1);
  zip.add("x", {});
  EXPECT_TRUE(throws([&] { zip.finish(); }));  // two records 'x'
}

TEST(ZipWriter, TakesTheLongestNameThatTheReaderTakes) {
  StringSink sink;
  ZipWriter zip(sink);
  zip.add(std::string(504, 'n'), as_bytes("x"));
  zip.finish();
  EXPECT_EQ(ZipReader(memory_source(as_bytes(sink.text)), {}).entries()[0].name.size(), 512U);
}

}  // namespace zip_writer_test
}  // namespace cairn
