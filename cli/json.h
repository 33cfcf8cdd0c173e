// JSON written as it is made: a listing of millions of chunks never lies in memory as a tree.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn::cli {

class Output;

std::string json_number(double number);  // NaN and infinities as "nan", "inf", "-inf", in quotes

// Puts the commas; the caller opens and closes in order. Strings are always valid JSON: control
// characters are escaped, bytes that are no UTF-8 become U+FFFD.
class JsonWriter {
 public:
  explicit JsonWriter(Output& out) : out_(out) {}

  void begin_object();
  void end_object();
  void begin_array();
  void end_array();
  void key(std::string_view name);
  void new_line();  // between the entries of a long list, for people and for grep

  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool flag);
  void value(double number);  // as json_number()
  void value(const Shape& shape);
  void null();
  void begin_raw() { separate(); }  // the caller writes the next value to the output itself
  template <std::integral T> void value(T n) {
    if constexpr (std::signed_integral<T>) {
      integer(std::int64_t{n});
    } else {
      integer(std::uint64_t{n});
    }
  }

  // Plain data as JSON would have it; what JSON has no word for as the text Python would print.
  void value(const Value& value);

  template <class T> void member(std::string_view name, const T& v) {
    key(name);
    value(v);
  }

 private:
  void separate();
  void integer(std::int64_t n);
  void integer(std::uint64_t n);

  Output& out_;
  bool comma_ = false;  // something stands before the next value
};

}  // namespace cairn::cli
