// Is this valid UTF-8? What is left of it that is, and what Latin-1 it stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace cairn {

// Strict UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF.
bool is_utf8_beyond_ascii(std::string_view text);

inline bool is_utf8(std::string_view text) {
  const char* p = text.data();
  std::size_t n = text.size();
  for (; n >= 8; p += 8, n -= 8)
    if ((load<std::uint64_t>(p) & 0x8080808080808080U) != 0) return is_utf8_beyond_ascii({p, n});
  for (; n > 0; ++p, --n)
    if ((static_cast<unsigned char>(*p) & 0x80U) != 0) return is_utf8_beyond_ascii({p, n});
  return true;
}

// The text with U+FFFD in the place of each byte that belongs to no character.
std::string to_utf8(std::string_view text);

// Bytes as the characters of their numbers, as Python's "latin1" has it.
std::string latin1_to_utf8(std::string_view bytes);
// nullopt when there are other characters in it.
std::optional<std::string> utf8_to_latin1(std::string_view utf8);

}  // namespace cairn
