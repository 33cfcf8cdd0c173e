#include "base/hash.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>
#include <vector>

namespace cairn {
namespace {

std::string random_text(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// CRC by its definition, bit by bit, with the polynomial reversed.
std::uint32_t crc_by_bits(std::string_view text, std::uint32_t polynomial) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
  }
  return ~crc;
}

TEST(Crc32, OfTheCheckStringIsTheKnownValue) {
  EXPECT_EQ(crc32(as_bytes("123456789")), 0xcbf43926U);
  EXPECT_EQ(crc32(as_bytes("")), 0U);
}

TEST(Crc32c, OfTheCheckStringIsTheKnownValue) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(as_bytes("")), 0U);
}

TEST(Crc32, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  const std::string text = random_text(700, 1);
  for (std::size_t start = 0; start < 9; ++start) {
    for (std::size_t size = 0; size < 600; size += size < 70 ? 1 : 37) {
      const std::string_view part = std::string_view(text).substr(start, size);
      ASSERT_EQ(crc32(as_bytes(part)), crc_by_bits(part, 0xedb88320U)) << start << " " << size;
      ASSERT_EQ(crc32c(as_bytes(part)), crc_by_bits(part, 0x82f63b78U)) << start << " " << size;
    }
  }
}

TEST(Crc32, ContinuesFromASeed) {
  const std::string text = random_text(1000, 2);
  const ByteSpan bytes = as_bytes(text);
  for (const std::size_t cut : {0, 1, 63, 64, 500, 999, 1000}) {
    EXPECT_EQ(crc32(bytes.subspan(cut), crc32(bytes.first(cut))), crc32(bytes)) << cut;
    EXPECT_EQ(crc32c(bytes.subspan(cut), crc32c(bytes.first(cut))), crc32c(bytes)) << cut;
  }
}

TEST(Crc32, CombinesTheHalves) {
  const std::string text = random_text(1000, 3);
  const ByteSpan bytes = as_bytes(text);
  for (const std::size_t cut : {0, 1, 63, 500, 999, 1000}) {
    const ByteSpan tail = bytes.subspan(cut);
    EXPECT_EQ(crc32_combine(crc32(bytes.first(cut)), crc32(tail), tail.size()), crc32(bytes)) << cut;
  }
}

// Lengths past 2^31, 2^32 and 2^63, built by doubling runs of zeros and appending them one by one.
TEST(Crc32, CombinesLengthsOfEverySize) {
  const std::string start = "some bytes before";
  const std::vector<std::byte> zero(1);
  std::uint32_t zeros = crc32(zero);  // of 2^power zero bytes
  for (int power = 0; power < 64; ++power) {
    const std::uint64_t length = std::uint64_t{1} << power;
    const std::uint32_t once = crc32_combine(crc32(as_bytes(start)), zeros, length);
    const std::uint32_t twice = crc32_combine(once, zeros, length);
    const std::uint32_t doubled = crc32_combine(zeros, zeros, length);
    if (power < 63) {
      ASSERT_EQ(twice, crc32_combine(crc32(as_bytes(start)), doubled, 2 * length)) << power;
    }
    if (power < 20) {
      ASSERT_EQ(zeros, crc32(std::vector<std::byte>(length))) << power;
    }
    zeros = doubled;
  }
  const std::uint32_t a = crc32(as_bytes(start));
  EXPECT_EQ(crc32_combine(a, 7, 5'000'000'000ULL), ::crc32_combine64(a, 7, 5'000'000'000LL));
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<std::size_t>(byte >> 4)];
    text += kDigits[static_cast<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

TEST(Xxh3, OfNothingIsTheKnownValue) {
  EXPECT_EQ(xxh3_64({}), 0x2d06800538d394c2ULL);
  EXPECT_EQ(hex(xxh3_128({})), "99aa06d3014798d86001c324468d497f");
}

TEST(Xxh3, OfShortAndLongTextIsTheKnownValue) {
  EXPECT_EQ(xxh3_64(as_bytes("a")), 0xe6c632b61e964e1fULL);
  EXPECT_EQ(hex(xxh3_128(as_bytes("a"))), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_NE(xxh3_64(as_bytes(std::string(1000, 'a'))), xxh3_64(as_bytes(std::string(1001, 'a'))));
}

}  // namespace
}  // namespace cairn
