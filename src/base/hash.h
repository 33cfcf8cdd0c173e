// Checksums and hashes, at the speed of the hardware.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace cairn {

// CRC-32 as zip uses it. `seed` is the checksum of the bytes before these (0 for none).
std::uint32_t crc32(ByteSpan bytes, std::uint32_t seed = 0);

// The CRC-32 of A followed by B, from crc32(A), crc32(B) and the length of B.
std::uint32_t crc32_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b);

// CRC-32C (Castagnoli).
std::uint32_t crc32c(ByteSpan bytes, std::uint32_t seed = 0);

// XXH3, 64 and 128 bits (the 128-bit one in XXH128_canonical order).
std::uint64_t xxh3_64(ByteSpan bytes);
std::array<std::byte, 16> xxh3_128(ByteSpan bytes);

}  // namespace cairn
