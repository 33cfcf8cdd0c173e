#include "base/hash.h"

#define XXH_INLINE_ALL  // the header is all there is
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>

#ifdef CAIRN_HAVE_ISAL
#include <isa-l/crc.h>
#elif defined(CAIRN_HAVE_LIBDEFLATE)
#include <libdeflate.h>
#endif

namespace cairn {
namespace {

const unsigned char* bytes_of(ByteSpan bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

#ifndef CAIRN_HAVE_ISAL

// CRC-32C by table, eight bytes at a time: row k is the effect of a byte that k more bytes follow.
using Crc32cTable = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Crc32cTable make_crc32c_table() {
  Crc32cTable table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    table[0][byte] = crc;
  }
  for (std::size_t row = 1; row < 8; ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = table[row - 1][byte];
      table[row][byte] = (crc >> 8) ^ table[0][crc & 0xff];
    }
  }
  return table;
}

std::uint32_t crc32c_by_table(ByteSpan bytes, std::uint32_t crc) {
  static constexpr Crc32cTable kTable = make_crc32c_table();
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const std::uint64_t word = load<std::uint64_t>(bytes.data()) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTable[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
  }
  return crc;
}

#endif

}  // namespace

std::uint32_t crc32(ByteSpan bytes, std::uint32_t seed) {
#ifdef CAIRN_HAVE_ISAL
  return crc32_gzip_refl(seed, bytes_of(bytes), bytes.size());  // inverts before and after, as zlib does
#elif defined(CAIRN_HAVE_LIBDEFLATE)
  // Without a buffer it says 0, whatever came before.
  return bytes.empty() ? seed : libdeflate_crc32(seed, bytes.data(), bytes.size());
#else
  return static_cast<std::uint32_t>(::crc32_z(seed, bytes_of(bytes), bytes.size()));
#endif
}

std::uint32_t crc32_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
  // zlib takes a signed length. Appending 2^32 - 1 bytes multiplies by x^(8 (2^32 - 1)) = 1 modulo the
  // polynomial, whose order divides 2^32 - 1: the length counts only modulo that.
  return static_cast<std::uint32_t>(
      ::crc32_combine64(crc_a, crc_b, static_cast<z_off64_t>(length_b % 0xffffffffULL)));
}

std::uint32_t crc32c(ByteSpan bytes, std::uint32_t seed) {
#ifdef CAIRN_HAVE_ISAL
  // ISA-L inverts neither before nor after, and counts with an int: long inputs go in pieces.
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  std::uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const ByteSpan piece = bytes.first(std::min(bytes.size(), kPiece));
    // Declared without const, but only read.
    crc = crc32_iscsi(const_cast<unsigned char*>(bytes_of(piece)), static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
#else
  return ~crc32c_by_table(bytes, ~seed);
#endif
}

std::uint64_t xxh3_64(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::array<std::byte, 16> xxh3_128(ByteSpan bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::array<std::byte, 16> hash;
  std::memcpy(hash.data(), canonical.digest, hash.size());
  return hash;
}

}  // namespace cairn
