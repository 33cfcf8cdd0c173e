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

}  // namespace

bool is_utf8_beyond_ascii(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const Lead lead = lead_of(static_cast<unsigned char>(text[i]));
    if (lead.length == 0 || text.size() - i < static_cast<std::size_t>(lead.length)) return false;
    for (int k = 1; k < lead.length; ++k) {
      const auto c = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      if (k == 1 ? (c < lead.low || c > lead.high) : (c & 0xC0U) != 0x80U) return false;
    }
    i += static_cast<std::size_t>(lead.length);
  }
  return true;
}

}  // namespace cairn
