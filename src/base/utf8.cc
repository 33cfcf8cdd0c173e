#include "base/utf8.h"

namespace cairn {
namespace {

// Length of the sequence that starts with `lead`, and the range its second byte must lie in.
struct Lead {
  int length;
  unsigned char low, high;
};

Lead lead_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The bytes of the character that the text begins with; 0 when it begins with none.
std::size_t character_of(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  const auto length = static_cast<std::size_t>(lead.length);
  if (text.size() < length) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    const auto c = static_cast<unsigned char>(text[k]);
    if (k == 1 ? (c < lead.low || c > lead.high) : (c & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

}  // namespace

bool is_utf8_beyond_ascii(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_of(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string latin1_to_utf8(std::string_view bytes) {
  std::string utf8(2 * bytes.size(), '\0');
  char* to = utf8.data();
  for (const char c : bytes) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x80) *to++ = static_cast<char>(0xC0U | u >> 6U);
    *to++ = static_cast<char>(u < 0x80 ? u : 0x80U | (u & 0x3FU));
  }
  utf8.resize(static_cast<std::size_t>(to - utf8.data()));
  return utf8;
}

std::optional<std::string> utf8_to_latin1(std::string_view utf8) {
  std::string bytes(utf8.size(), '\0');
  char* to = bytes.data();
  for (const char* from = utf8.data(); from != utf8.data() + utf8.size();) {
    const auto c = static_cast<unsigned char>(*from++);
    if (c < 0x80) {
      *to++ = static_cast<char>(c);
    } else if ((c == 0xC2 || c == 0xC3) && from != utf8.data() + utf8.size()) {
      *to++ = static_cast<char>((c & 3U) << 6U | (static_cast<unsigned char>(*from++) & 0x3FU));
    } else {
      return std::nullopt;
    }
  }
  bytes.resize(static_cast<std::size_t>(to - bytes.data()));
  return bytes;
}

std::string to_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const std::size_t length = character_of(text);
    valid += length == 0 ? "\xEF\xBF\xBD" : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

}  // namespace cairn
