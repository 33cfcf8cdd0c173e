#include "json.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <variant>

#include "output.h"
#include "text.h"
#include "utf8.h"

namespace cairn::cli {
namespace {

void put_escaped(Output& out, std::string_view text) {
  std::size_t done = 0;  // what lies before is written
  const auto replace = [&](std::size_t at, std::size_t length, std::string_view by) {
    out.text(text.substr(done, at - done));
    out.text(by);
    done = at + length;
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8 c = decode_utf8(text.substr(at));
    if (!c.valid) {
      replace(at, 1, "\\ufffd");
    } else if (c.code == '"' || c.code == '\\') {
      replace(at, 1, c.code == '"' ? "\\\"" : "\\\\");
    } else if (is_hidden(c.code) && c.code >= 0x10000) {
      const std::uint32_t rest = c.code - 0x10000;  // in two halves, as JSON has it
      replace(at, c.length,
              fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)));
    } else if (is_hidden(c.code)) {
      replace(at, c.length, fmt::format("\\u{:04x}", c.code));
    }
    at += c.length;
  }
  out.text(text.substr(done));
}

}  // namespace

std::string json_number(double number) {
  if (std::isnan(number)) return "\"nan\"";
  if (std::isinf(number)) return number > 0 ? "\"inf\"" : "\"-inf\"";
  return fmt::format("{}", number);
}

void JsonWriter::separate() {
  if (comma_) out_.put(',');
  comma_ = true;
}

void JsonWriter::begin_object() {
  separate();
  out_.put('{');
  comma_ = false;
}

void JsonWriter::end_object() {
  out_.put('}');
  comma_ = true;
}

void JsonWriter::begin_array() {
  separate();
  out_.put('[');
  comma_ = false;
}

void JsonWriter::end_array() {
  out_.put(']');
  comma_ = true;
}

void JsonWriter::key(std::string_view name) {
  value(name);
  out_.put(':');
  comma_ = false;
}

void JsonWriter::new_line() {
  if (comma_) out_.put(',');
  out_.put('\n');
  comma_ = false;
}

void JsonWriter::value(std::string_view text) {
  separate();
  out_.put('"');
  if (is_plain(text) && text.find('"') == std::string_view::npos) {
    out_.text(text);
  } else {
    put_escaped(out_, text);
  }
  out_.put('"');
}

void JsonWriter::value(bool flag) {
  separate();
  out_.text(flag ? "true" : "false");
}

void JsonWriter::value(double number) {
  separate();
  out_.text(json_number(number));
}

void JsonWriter::value(const Shape& shape) {
  separate();
  out_.put('[');
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) out_.put(',');
    out_.number(shape[i]);
  }
  out_.put(']');
}

void JsonWriter::null() {
  separate();
  out_.text("null");
}

void JsonWriter::integer(std::int64_t n) {
  separate();
  out_.number(n);
}

void JsonWriter::integer(std::uint64_t n) {
  separate();
  out_.number(n);
}

// Recurses as deep as the value, which its reader keeps within Limits::depth.
void JsonWriter::value(const Value& v) {
  const auto items = [&](const List& list) {
    begin_array();
    for (const Value& item : list) value(item);
    end_array();
  };
  if (v.is<None>()) return null();
  if (const bool* flag = v.get_if<bool>()) return value(*flag);
  if (const std::int64_t* n = v.get_if<std::int64_t>()) return value(*n);
  if (const double* x = v.get_if<double>()) return value(*x);
  if (const std::string* text = v.get_if<std::string>()) return value(std::string_view(*text));
  if (const List* list = v.get_if<List>()) return items(*list);
  if (const Tuple* tuple = v.get_if<Tuple>()) return items(tuple->items);
  if (const Dict* dict = v.get_if<Dict>()) {
    begin_object();
    for (const auto& [name, entry] : *dict) member(to_string(name), entry);
    end_object();
    return;
  }
  value(std::string_view(to_string(v)));
}

}  // namespace cairn::cli
