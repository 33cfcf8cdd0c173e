// A zip archive as its parts, for the mutator: taken apart without judging, put together with everything
// right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::fuzz {

std::uint32_t crc_of(std::string_view bytes);

// One record. Offsets are not kept: they come from the order.
struct ZipPart {
  std::string gap;  // before the local header
  std::string name = "archive/x";
  std::string data;  // as stored
  std::string local_extra;
  std::string central_extra;
  std::uint16_t flags = 0x0800;  // the descriptor's bit is `descriptor`
  std::uint16_t method = 0;
  std::uint64_t size = 0;  // uncompressed; of stored records the size of `data`
  std::uint32_t crc = 0;   // the same
  bool no_crc = false;     // "not computed": 0
  bool padded = false;     // data starts at a multiple of 64
  bool descriptor = false;
  std::uint8_t local_wide = 0;    // a zip64 block: none, sizes, the offset, both
  std::uint8_t central_wide = 0;  // bits: size, stored size, offset are there and not in their 32 bits
};

// Where a number lies in the archive that was put together.
struct ZipField {
  std::size_t at = 0;
  std::size_t bytes = 0;
};

struct ZipParts {
  std::vector<ZipPart> records;
  bool zip64 = false;      // the zip64 end records are there
  bool saturated = false;  // and the end record refers to them
  std::string comment;
  std::vector<ZipField> fields;  // filled by put_together()

  // False when there is no end record, or the directory it tells of is not there.
  bool take_apart(std::string_view archive);
  std::string put_together();
};

}  // namespace cairn::fuzz
