#include "format/json_scanner.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <vector>

#include "base/pod_vector.h"
#include "format/names.h"

namespace cairn {
namespace {

constexpr std::uint64_t kMostInteger = std::uint64_t{1} << 53;  // JSON numbers are exact up to here

// Bytes that end the plain run of a string: the quote, an escape, control characters.
constexpr std::array<bool, 256> make_stops() {
  std::array<bool, 256> stops{};
  for (std::size_t c = 0; c < 0x20; ++c) stops[c] = true;
  stops['"'] = stops['\\'] = true;
  return stops;
}
constexpr std::array<bool, 256> kStops = make_stops();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_high_surrogate(std::uint32_t unit) { return (unit & 0xfc00U) == 0xd800; }

bool is_low_surrogate(std::uint32_t unit) { return (unit & 0xfc00U) == 0xdc00; }

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// The code point that starts at text[at] of valid UTF-8; moves `at` past it.
std::uint32_t next_code(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first < 0xe0 ? 1 : (first < 0xf0 ? 2 : 3);
  std::uint32_t code = first & (0x3fU >> more);
  for (int i = 0; i < more && at < text.size(); ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[at++]) & 0x3fU);
  }
  return code;
}

// The letter of a two-character escape such as \n; 0 when `c` has none.
char escape_letter(std::uint32_t c) {
  switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

}  // namespace

void JsonScanner::fail(std::string_view message) const {
  throw Error(ErrorCode::kCorrupt, fmt::format("{} {}", what_, message)).at(offset_ + at_);
}

void JsonScanner::fail_expecting(char c) const {
  fail(fmt::format("is not as expected: there should be a '{}'", c));
}

bool JsonScanner::take_word(std::string_view word) {
  skip_space();
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

bool JsonScanner::take_null() { return take_word("null"); }

void JsonScanner::finish() {
  skip_space();
  if (at_ != text_.size()) fail("goes on after its end");
}

std::string_view JsonScanner::string() {
  if (!take('"')) fail("is not as expected: there should be a string");
  const std::size_t begin = at_;
  while (at_ < text_.size() && !kStops[static_cast<unsigned char>(text_[at_])]) ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  return decode_string(begin);
}

// Goes on with a string whose plain run from `begin` is broken at at_.
std::string_view JsonScanner::decode_string(std::size_t begin) {
  decoded_.assign(text_.substr(begin, at_ - begin));
  for (;;) {
    if (at_ >= text_.size()) fail("ends inside a string");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) fail("has a control character inside a string");
    ++at_;
    if (c == '"') return decoded_;
    if (c == '\\') {
      decode_escape();
    } else {
      decoded_ += c;
    }
  }
}

void JsonScanner::decode_escape() {
  if (at_ >= text_.size()) fail("ends inside a string");
  switch (text_[at_++]) {
    case '"': decoded_ += '"'; return;
    case '\\': decoded_ += '\\'; return;
    case '/': decoded_ += '/'; return;
    case 'b': decoded_ += '\b'; return;
    case 'f': decoded_ += '\f'; return;
    case 'n': decoded_ += '\n'; return;
    case 'r': decoded_ += '\r'; return;
    case 't': decoded_ += '\t'; return;
    case 'u': break;
    default: fail("has an unknown escape inside a string");
  }
  std::uint32_t code = four_hex_digits();
  if (is_high_surrogate(code) && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const std::uint32_t low = four_hex_digits();
    if (!is_low_surrogate(low)) fail("has half a surrogate pair inside a string");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (is_high_surrogate(code) || is_low_surrogate(code)) {
    fail("has half a surrogate pair inside a string");
  }
  append_utf8(decoded_, code);
}

std::uint32_t JsonScanner::four_hex_digits() {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : ' ';
    std::uint32_t digit = 0;
    if (is_digit(c)) {
      digit = static_cast<std::uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<std::uint32_t>(c - 'A') + 10;
    } else {
      fail("has an escape without four hexadecimal digits");
    }
    value = value * 16 + digit;
  }
  return value;
}

std::size_t JsonScanner::count_digits() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ - begin;
}

std::string_view JsonScanner::number() {
  skip_space();
  const std::size_t begin = at_;
  const auto here = [&] { return at_ < text_.size() ? text_[at_] : ' '; };
  if (here() == '-') ++at_;
  const bool zero_first = here() == '0';
  const std::size_t digits = count_digits();
  if (digits == 0) fail("is not as expected: there should be a number");
  if (zero_first && digits > 1) fail("has a number with a leading zero");
  if (here() == '.') {
    ++at_;
    if (count_digits() == 0) fail("has a number without digits after its point");
  }
  if (here() == 'e' || here() == 'E') {
    ++at_;
    if (here() == '+' || here() == '-') ++at_;
    if (count_digits() == 0) fail("has a number without digits in its exponent");
  }
  return text_.substr(begin, at_ - begin);
}

// Beyond a double some readers refuse, and others see infinity or a whole number of any length.
void JsonScanner::skip_number() {
  const std::string_view found = number();
  const bool is_plain =
      found.size() < std::numeric_limits<double>::max_exponent10 && found.find_first_of("eE") == found.npos;
  if (!is_plain && !std::isfinite(std::strtod(std::string(found).c_str(), nullptr)))
    fail("has a number that is too large");
}

std::uint64_t JsonScanner::integer() {
  const std::string_view digits = number();
  std::uint64_t value = 0;
  for (const char c : digits) {
    if (!is_digit(c)) fail(fmt::format("has {} where a whole number should be", digits.substr(0, 40)));
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
    if (value > kMostInteger)
      throw Error(ErrorCode::kLimit, fmt::format("{} has a number above 2^53", what_)).at(offset_ + at_);
  }
  return value;
}

void JsonScanner::skip_value(std::uint32_t depth) {
  struct Level {
    bool is_object;
    std::size_t first_key;
  };
  std::vector<Level> open;
  PodVector<std::string_view> keys;      // of all open objects
  std::deque<std::string> with_escapes;  // the keys that are not in the text as they are
  const auto read_key = [&] {
    std::string_view key = string();
    if (key.data() == decoded_.data()) key = with_escapes.emplace_back(key);
    keys.push_back(key);
    expect(':');
  };
  const auto close = [&] {
    const Level level = open.back();
    expect(level.is_object ? '}' : ']');
    const auto key_at = [&](std::size_t i) { return keys[level.first_key + i]; };
    if (const auto twice = find_duplicate(keys.size() - level.first_key, key_at)) {
      fail(fmt::format("has the key '{}' twice in one object", key_at(*twice)));
    }
    keys.truncate(level.first_key);
    open.pop_back();
  };
  for (;;) {
    if (next_is('{') || next_is('[')) {
      if (open.size() >= depth) {
        throw Error(ErrorCode::kLimit, fmt::format("{} is nested too deeply", what_)).at(offset_ + at_);
      }
      open.push_back({text_[at_++] == '{', keys.size()});
      if (!next_is(open.back().is_object ? '}' : ']')) {
        if (open.back().is_object) read_key();
        continue;
      }
      close();
    } else if (next_is('"')) {
      string();
    } else if (!take_word("true") && !take_word("false") && !take_word("null")) {
      skip_number();
    }
    while (!open.empty() && !take(',')) close();
    if (open.empty()) return;
    if (open.back().is_object) read_key();
  }
}

void append_json_string(std::string& json, std::string_view text, JsonText encoding) {
  json += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const std::uint32_t code = next_code(text, at);
    if (const char letter = escape_letter(code)) {
      json += '\\';
      json += letter;
    } else if (code < 0x20 || (encoding == JsonText::kAscii && code == 0x7f)) {
      json += fmt::format("\\u{:04x}", code);
    } else if (code < 0x80 || encoding == JsonText::kUtf8) {
      json += text.substr(begin, at - begin);
    } else if (code < 0x10000) {
      json += fmt::format("\\u{:04x}", code);
    } else {
      json += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                          0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }
  json += '"';
}

}  // namespace cairn
