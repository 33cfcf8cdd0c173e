// One character of UTF-8 at a time, from text that may be anything.
#pragma once

#include <cstdint>
#include <string_view>

namespace cairn::cli {

struct Utf8 {
  std::uint32_t code = 0;
  std::uint32_t length = 1;  // bytes; 1 for a byte that starts no character
  bool valid = false;        // no overlong form, no surrogate, at most U+10FFFF
};

inline Utf8 decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const std::uint32_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {first, 1, false};
  std::uint32_t code = first & (0x7F >> length);
  for (std::uint32_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {first, 1, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) return {first, 1, false};
  return {code, length, true};
}

}  // namespace cairn::cli
