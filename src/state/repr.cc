#include "state/repr.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <utility>

#include "state/nesting.h"

namespace cairn {
namespace {

constexpr std::size_t kDecimalBytes = 1024;  // longer integers are shown by their size

void append_hex(std::string& out, const char* prefix, std::uint32_t v, int digits) {
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[v >> shift & 15];
}

// The code point at `at` and its length in bytes; length 0 when the bytes are not UTF-8. Surrogates are
// taken, since Python's pickles may hold them.
std::pair<std::uint32_t, std::size_t> decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(at);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + length > text.size()) return {0, 0};
  std::uint32_t point = first & (0xff >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {0, 0};
    point = point << 6 | (byte(at + i) & 0x3f);
  }
  const std::uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  if (point < least || point > 0x10ffff) return {0, 0};
  return {point, length};
}

// Whether Python escapes a non-ASCII code point: controls, formats, separators, surrogates, private use.
// Unassigned code points are not in the table and are shown as they are.
bool is_unprintable(std::uint32_t p) {
  static constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 19> kRanges{{
      {0x80, 0xa0},     {0xad, 0xad},     {0x600, 0x605},     {0x61c, 0x61c},      {0x6dd, 0x6dd},
      {0x70f, 0x70f},   {0x1680, 0x1680}, {0x180e, 0x180e},   {0x2000, 0x200f},    {0x2028, 0x202f},
      {0x205f, 0x206f}, {0x3000, 0x3000}, {0xd800, 0xf8ff},   {0xfdd0, 0xfdef},    {0xfeff, 0xfeff},
      {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff},
  }};
  return std::any_of(kRanges.begin(), kRanges.end(), [p](auto r) { return r.first <= p && p <= r.second; });
}

void append_point(std::string& out, std::uint32_t point) {
  if (point <= 0xff) {
    append_hex(out, "\\x", point, 2);
  } else if (point <= 0xffff) {
    append_hex(out, "\\u", point, 4);
  } else {
    append_hex(out, "\\U", point, 8);
  }
}

bool append_ascii(std::string& out, char c, char quote) {
  switch (c) {
    case '\n': out += "\\n"; return true;
    case '\r': out += "\\r"; return true;
    case '\t': out += "\\t"; return true;
    case '\\': out += "\\\\"; return true;
    default: break;
  }
  if (c == quote) {
    out += '\\';
  } else if (c < 0x20 || c == 0x7f) {
    return false;
  }
  out += c;
  return true;
}

// Magnitude of a two's complement number, as 32-bit words from the lowest.
std::vector<std::uint32_t> magnitude(std::string_view twos_complement, bool& negative) {
  negative = !twos_complement.empty() && (twos_complement.back() & 0x80) != 0;
  std::vector<std::uint32_t> words((twos_complement.size() + 3) / 4 + 1);
  for (std::size_t i = 0; i < words.size() * 4; ++i) {
    const std::uint32_t fill = negative ? 0xff : 0;
    const std::uint32_t b = i < twos_complement.size() ? static_cast<std::uint8_t>(twos_complement[i]) : fill;
    words[i / 4] |= b << (8 * (i % 4));
  }
  if (!negative) return words;
  std::uint64_t carry = 1;
  for (std::uint32_t& w : words) {
    carry += static_cast<std::uint32_t>(~w);
    w = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  return words;
}

}  // namespace

std::string repr_of_real(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(v), std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const std::string_view exponent_text = text.substr(e + 1);
  int exponent = 0;
  std::from_chars(exponent_text.data() + (exponent_text[0] == '+'), end, exponent);

  std::string out = std::signbit(v) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + "e" + std::string(exponent_text);  // to_chars writes a sign and two digits, like Python
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string repr_of_text(std::string_view text, std::size_t max_chars) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    if (out.size() > max_chars) return out;
    const auto [point, length] = decode(text, at);
    if (length == 0) {
      append_hex(out, "\\x", static_cast<std::uint8_t>(text[at]), 2);
    } else if (length == 1) {
      if (!append_ascii(out, text[at], quote)) append_point(out, point);
    } else if (is_unprintable(point)) {
      append_point(out, point);
    } else {
      out += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return out + quote;
}

std::string repr_of_bytes(std::string_view data, std::size_t max_chars) {
  const char quote = data.find('\'') != data.npos && data.find('"') == data.npos ? '"' : '\'';
  std::string out = std::string("b") + quote;
  for (const char c : data) {
    if (out.size() > max_chars) return out;
    const auto b = static_cast<std::uint8_t>(c);
    if (b >= 0x80 || !append_ascii(out, c, quote)) append_hex(out, "\\x", b, 2);
  }
  return out + quote;
}

std::string decimal(const BigInt& v) {
  if (v.twos_complement.size() > kDecimalBytes) {
    return "<integer of " + std::to_string(v.twos_complement.size()) + " bytes>";
  }
  bool negative = false;
  std::vector<std::uint32_t> words = magnitude(v.twos_complement, negative);
  std::string reversed;
  while (!words.empty()) {
    std::uint64_t remainder = 0;
    for (std::size_t i = words.size(); i-- > 0;) {
      remainder = remainder << 32 | words[i];
      words[i] = static_cast<std::uint32_t>(remainder / 1'000'000'000);
      remainder %= 1'000'000'000;
    }
    while (!words.empty() && words.back() == 0) words.pop_back();
    for (int i = 0; i < 9; ++i, remainder /= 10) reversed += static_cast<char>('0' + remainder % 10);
  }
  while (reversed.size() > 1 && reversed.back() == '0') reversed.pop_back();
  if (negative) reversed += '-';
  return {reversed.rbegin(), reversed.rend()};
}

namespace {

// Appends pieces until there are more than max_ characters; whoever loops looks at full().
class Printer {
 public:
  explicit Printer(std::size_t max_chars) : max_(max_chars) {}

  void print(const Value& value, int depth) {
    if (full()) return;
    if (depth > kMaxNesting) {
      out_ += "...";
      return;
    }
    value.visit([&](const auto& v) { put(v, depth); });
  }

  std::string take() {
    if (!full()) return std::move(out_);
    std::size_t cut = max_;
    while (cut > 0 && (out_[cut] & 0xc0) == 0x80) --cut;  // not inside a UTF-8 sequence
    out_.resize(cut);
    return std::move(out_) + "...";
  }

 private:
  bool full() const { return out_.size() > max_; }

  void put(None, int) { out_ += "None"; }
  void put(bool v, int) { out_ += v ? "True" : "False"; }
  void put(std::int64_t v, int) { out_ += std::to_string(v); }
  void put(const BigInt& v, int) { out_ += decimal(v); }
  void put(double v, int) { out_ += repr_of_real(v); }
  void put(const std::string& v, int) { out_ += repr_of_text(v, max_); }
  void put(const Bytes& v, int) { out_ += repr_of_bytes(v.data, max_); }
  void put(const List& v, int depth) {
    out_ += '[';
    put_items(v, depth);
    out_ += ']';
  }
  void put(const Tuple& v, int depth) {
    out_ += '(';
    put_items(v.items, depth);
    out_ += v.items.size() == 1 ? ",)" : ")";
  }
  void put(const Dict& v, int depth) {
    out_ += '{';
    for (auto at = v.begin(); at != v.end() && !full(); ++at) {
      if (at != v.begin()) out_ += ", ";
      std::visit([&](const auto& key) { put(key, depth); }, at->first);
      out_ += ": ";
      print(at->second, depth + 1);
    }
    out_ += '}';
  }
  void put(const Tensor& v, int) { put_tensor("tensor", v.view().dtype, v.view().shape); }
  void put(const ShardedTensor& v, int) { put_tensor("sharded_tensor", v.dtype, v.global_shape); }
  void put(const StoredTensor& v, int) { put_tensor("tensor", v.dtype, v.shape); }
  void put(const Opaque& v, int) { out_ += "<" + v.class_name + " object>"; }

  void put_items(const List& items, int depth) {
    for (std::size_t i = 0; i < items.size() && !full(); ++i) {
      if (i > 0) out_ += ", ";
      print(items[i], depth + 1);
    }
  }
  void put_tensor(const char* what, DType dtype, const Shape& shape) {
    out_ += std::string(what) + "(" + std::string(name_of(dtype)) + ", " + to_string(shape) + ")";
  }

  std::size_t max_;
  std::string out_;
};

}  // namespace

std::string to_string(const Value& value, std::size_t max_chars) {
  Printer printer(max_chars);
  printer.print(value, 0);
  return printer.take();
}

}  // namespace cairn
