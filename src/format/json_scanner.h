// Just enough JSON for the files we read: a scanner that is driven by the format's own grammar.
//
// There is no tree: a parser asks for the value it expects next. Nothing recurses on the input, numbers
// stay exact, and duplicate keys can be refused at every level. Texts are strict JSON (RFC 8259) in UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/error.h"

namespace cairn {

class JsonScanner {
 public:
  // `text` starts at byte `offset` of its file, and must be UTF-8 (the caller has checked) and outlive
  // the scanner. All errors are kCorrupt with the place, and start with `what`: "the index".
  JsonScanner(std::string_view text, std::uint64_t offset, std::string_view what)
      : text_(text), offset_(offset), what_(what) {}

  // Skips white space, then: is `c` next?
  bool next_is(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  // The same, and passes it.
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  // Error unless `c` is next.
  void expect(char c) {
    if (!take(c)) fail_expecting(c);
  }
  bool take_null();

  // A string's contents. The view is valid until the next call that reads a string.
  std::string_view string();
  // A number as it is written, checked against the grammar.
  std::string_view number();
  void skip_number();
  // A number without sign, fraction and exponent, at most 2^53.
  std::uint64_t integer();
  // Any value. At most `depth` containers inside each other (Error kLimit), no duplicate keys.
  void skip_value(std::uint32_t depth);
  // Only white space may be left.
  void finish();

  // Calls member(key) with the scanner before each member's value. `key` is a view as of string().
  template <class Member> void object(Member member) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string_view key = string();
      expect(':');
      member(key);
    } while (take(','));
    expect('}');
  }

  // Calls element() with the scanner before each element.
  template <class Element> void array(Element element) {
    expect('[');
    if (take(']')) return;
    do element();
    while (take(','));
    expect(']');
  }

  // An error at the place reached so far.
  [[noreturn]] void fail(std::string_view message) const;

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  static bool is_space(char c) { return c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t'); }
  [[noreturn]] void fail_expecting(char c) const;
  bool take_word(std::string_view word);
  std::size_t count_digits();
  std::string_view decode_string(std::size_t begin);
  void decode_escape();
  std::uint32_t four_hex_digits();

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint64_t offset_;
  std::string_view what_;
  std::string decoded_;  // the last string that had escapes
};

enum class JsonText { kUtf8, kAscii };

// Appends `text`, which is UTF-8, in quotes. kAscii writes all else as \uXXXX, as Python's json does.
void append_json_string(std::string& json, std::string_view text, JsonText encoding);

}  // namespace cairn
