// The fixed parts of a zip archive: signatures, sizes, flags. Little-endian; see docs/format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn::zip {

inline constexpr std::uint32_t kLocalSignature = 0x04034b50;       // "PK\3\4"
inline constexpr std::uint32_t kDescriptorSignature = 0x08074b50;  // "PK\7\10"
inline constexpr std::uint32_t kCentralSignature = 0x02014b50;     // "PK\1\2"
inline constexpr std::uint32_t kEnd64Signature = 0x06064b50;       // "PK\6\6"
inline constexpr std::uint32_t kLocatorSignature = 0x07064b50;     // "PK\6\7"
inline constexpr std::uint32_t kEndSignature = 0x06054b50;         // "PK\5\6"

inline constexpr std::size_t kLocalBytes = 30;
inline constexpr std::size_t kCentralBytes = 46;
inline constexpr std::size_t kEnd64Bytes = 56;
inline constexpr std::size_t kLocatorBytes = 20;
inline constexpr std::size_t kEndBytes = 22;
inline constexpr std::size_t kDescriptorBytes = 16;
inline constexpr std::size_t kDescriptor64Bytes = 24;

inline constexpr std::uint16_t kFlagDescriptor = 0x0008;      // sizes and CRC follow the data
inline constexpr std::uint16_t kFlagDeflateOptions = 0x0006;  // how hard the compressor tried
inline constexpr std::uint16_t kFlagUtf8 = 0x0800;

inline constexpr std::uint16_t kStored = 0;
inline constexpr std::uint16_t kDeflated = 8;

inline constexpr std::uint16_t kZip64Extra = 0x0001;
inline constexpr std::uint16_t kPaddingExtra = 0x4246;  // "FB"

// The version a record needs to be read, times ten: later ones are refused by everybody.
inline constexpr std::uint8_t kMostVersion = 63;

// A 32-bit or 16-bit field with this value stands for one in a zip64 record.
inline constexpr std::uint32_t kSaturated32 = 0xffffffff;
inline constexpr std::uint16_t kSaturated16 = 0xffff;

// What makes a record name unfit for an archive; nullptr when nothing does. The name must be a plain
// path of at least two parts without backslashes, in UTF-8.
const char* find_name_problem(std::string_view name);

}  // namespace cairn::zip
