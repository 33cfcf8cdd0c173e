#include <fmt/format.h>

#include <limits>
#include <string>
#include <string_view>

#include "json.h"
#include "output.h"
#include "show.h"
#include "text.h"

namespace cairn::cli {
namespace {

// The Python type that the value was.
std::string_view type_name(const Value& value) {
  if (value.is<None>()) return "None";
  if (value.is<bool>()) return "bool";
  if (value.is<std::int64_t>() || value.is<BigInt>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is<std::string>()) return "str";
  if (value.is<Bytes>()) return "bytes";
  if (value.is<List>()) return "list";
  if (value.is<Tuple>()) return "tuple";
  if (value.is<Dict>()) return "dict";
  if (const Opaque* opaque = value.get_if<Opaque>()) return opaque->class_name;
  return "tensor";
}

std::uint64_t stored_bytes(const Checkpoint& checkpoint, std::string_view name) {
  for (const ObjectSummary& object : checkpoint.objects())
    if (object.name == name) return object.bytes;
  return 0;
}

std::string disassembly(const Opaque& opaque, const ShowOptions& options) {
  return options.full ? disassemble_pickle(opaque.pickle, std::numeric_limits<std::size_t>::max())
                      : disassemble_pickle(opaque.pickle);
}

void put_lines(Output& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    out.text(visible(text.substr(0, end), Backslash::kKeep));
    out.put('\n');
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void print_json(const Checkpoint& checkpoint, std::string_view name, const Value& value,
                const ShowOptions& options, Output& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("name", name);
  json.member("kind", "object");
  json.member("bytes", stored_bytes(checkpoint, name));
  json.member("type", type_name(value));
  json.key("value");
  const Opaque* opaque = value.get_if<Opaque>();
  if (opaque != nullptr) {
    json.null();
    json.member("disassembly", std::string_view(disassembly(*opaque, options)));
  } else {
    json.value(value);
  }
  json.end_object();
  out.put('\n');
}

}  // namespace

void show_object(const Checkpoint& checkpoint, std::string_view name, const ShowOptions& options,
                 Output& out) {
  const Value value = checkpoint.object(name);
  if (options.json) return print_json(checkpoint, name, value, options, out);
  out.style(Output::Style::kBold);
  out.text(visible(name));
  out.style(Output::Style::kPlain);
  out.text(fmt::format("  {}, {} as stored\n", visible(type_name(value), Backslash::kKeep),
                       human_bytes(stored_bytes(checkpoint, name)).view()));
  if (const Opaque* opaque = value.get_if<Opaque>()) {
    out.text("an object of a class that cairn does not know; its pickle, which is never run:\n");
    return put_lines(out, disassembly(*opaque, options));
  }
  put_lines(out, options.full ? to_string(value, std::numeric_limits<std::size_t>::max()) : to_string(value));
}

}  // namespace cairn::cli
