#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

#include "output.h"
#include "utf8.h"

namespace cairn::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void escape(std::string& to, std::uint32_t c) {
  switch (c) {
    case '\n': to += "\\n"; return;
    case '\r': to += "\\r"; return;
    case '\t': to += "\\t"; return;
    default: break;
  }
  if (c < 0x100) {
    fmt::format_to(std::back_inserter(to), "\\x{:02x}", c);
  } else if (c < 0x10000) {
    fmt::format_to(std::back_inserter(to), "\\u{:04x}", c);
  } else {
    fmt::format_to(std::back_inserter(to), "\\U{:08x}", c);
  }
}

}  // namespace

bool is_hidden(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) ||                          // C0, DEL, C1
         c == 0x061C || c == 0x200E || c == 0x200F ||                     // direction marks
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) ||  // separators, embeddings
         c == 0xFEFF || (c >= 0xE0000 && c <= 0xE007F);                   // byte order mark, tags
}

ShortText human_bytes(std::uint64_t bytes) {
  static constexpr std::string_view kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  std::size_t unit = 0;
  double scaled = static_cast<double>(bytes);
  while (scaled >= 1024 && unit + 1 < std::size(kUnits)) {
    scaled /= 1024;
    ++unit;
  }
  std::uint64_t tenths = static_cast<std::uint64_t>(std::llround(scaled * 10));
  if (tenths >= 10240 && unit + 1 < std::size(kUnits)) {  // 1023.96 KiB is 1.0 MiB
    tenths = 10;
    ++unit;
  }
  ShortText text;
  const auto append = [&](std::string_view s) {
    std::memcpy(text.data + text.size, s.data(), s.size());
    text.size += s.size();
  };
  const fmt::format_int whole(tenths / 10);
  append({whole.data(), whole.size()});
  if (unit > 0) {
    const char tenth[] = {'.', static_cast<char>('0' + tenths % 10)};
    append({tenth, 2});
  }
  append(kUnits[unit]);
  return text;
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::size_t digits(std::uint64_t n) {
  static constexpr std::uint64_t kPowers[] = {0ULL,
                                              10ULL,
                                              100ULL,
                                              1000ULL,
                                              10000ULL,
                                              100000ULL,
                                              1000000ULL,
                                              10000000ULL,
                                              100000000ULL,
                                              1000000000ULL,
                                              10000000000ULL,
                                              100000000000ULL,
                                              1000000000000ULL,
                                              10000000000000ULL,
                                              100000000000000ULL,
                                              1000000000000000ULL,
                                              10000000000000000ULL,
                                              100000000000000000ULL,
                                              1000000000000000000ULL,
                                              10000000000000000000ULL};
  // log10 from log2 (1233 / 4096 is just above log10(2)), then one comparison to correct it.
  const std::size_t guess = static_cast<std::size_t>(std::bit_width(n | 1)) * 1233 >> 12;
  return guess + (n >= kPowers[guess] || guess == 0 ? 1 : 0);
}

std::size_t width_of(const Shape& shape) {
  std::size_t width = 2 + (shape.rank() > 1 ? 2 * (shape.rank() - 1) : 0);
  for (const std::int64_t d : shape)
    width += d < 0 ? 1 + digits(0 - static_cast<std::uint64_t>(d)) : digits(static_cast<std::uint64_t>(d));
  return width;
}

void put_shape(Output& out, const Shape& shape) {
  out.put('[');
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) out.text(", ");
    out.number(shape[i]);
  }
  out.put(']');
}

bool is_plain(std::string_view text) {
  constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
  constexpr std::uint64_t kHigh = 0x8080808080808080ULL;
  const auto zero_byte = [](std::uint64_t w) { return (w - kOnes) & ~w & kHigh; };
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t w;
    std::memcpy(&w, text.data() + i, 8);
    const std::uint64_t below_space = (w - kOnes * 0x20) & ~w & kHigh;
    if ((w & kHigh) | below_space | zero_byte(w ^ kOnes * 0x7F) | zero_byte(w ^ kOnes * '\\')) return false;
  }
  for (; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c >= 0x7F || c == '\\') return false;
  }
  return true;
}

std::string visible(std::string_view text, Backslash backslash) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8 c = decode_utf8(text.substr(at));
    if (!c.valid) {
      escape(shown, static_cast<unsigned char>(text[at]));
    } else if (is_hidden(c.code)) {
      escape(shown, c.code);
    } else if (c.code == '\\' && backslash == Backslash::kDouble) {
      shown += "\\\\";
    } else {
      shown += text.substr(at, c.length);
    }
    at += c.length;
  }
  return shown;
}

std::size_t width_of(std::string_view visible_text) {
  return static_cast<std::size_t>(std::count_if(visible_text.begin(), visible_text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void put_visible(Output& out, std::string_view text) {
  if (is_plain(text)) return out.text(text);
  out.text(visible(text));
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i;
      ++j;
      continue;
    }
    const auto number = [](std::string_view s, std::size_t& at) {
      while (at < s.size() && s[at] == '0') ++at;
      const std::size_t start = at;
      while (at < s.size() && is_digit(s[at])) ++at;
      return s.substr(start, at - start);
    };
    const std::string_view x = number(a, i);
    const std::string_view y = number(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // "01" and "1" are different names
}

}  // namespace cairn::cli
