// cairn_probe read < FRAMES
//
// Reads many small files in one process, for tests that compare our reading with another parser's. A frame on
// stdin is a letter, a length (u32, little-endian) and that many bytes; the answer is a line of JSON:
//
//   z  zip archive            {"entries": [[name, data offset, size, stored size, crc, deflated], ...]}
//   p  pickle (data.pkl)      {"opcodes": count, "at": [[name, offset], ...], "value": repr, or null if not
//   plain} s  safetensors            {"tensors": [[name, dtype, shape, begin, end], ...], "metadata": [[key,
//   text], ...]} i  index.json             {"weight_map": [[name, file], ...], "total_size": bytes} h
//   DCP_SHARDING_INFO      {"offsets": [[name, offsets], ...]}, by name j  any JSON               {}
//
// What is refused: {"error": code, "message": text}.
#include <cstdint>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/source.h"
#include "base/utf8.h"
#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "format/json_scanner.h"
#include "format/pickle.h"
#include "format/pickle_ops.h"
#include "format/safetensors.h"
#include "format/sharding_info.h"
#include "format/zip.h"
#include "probe.h"

namespace {

using cairn::as_bytes;
using cairn::Limits;
using Json = nlohmann::ordered_json;

Json read_zip(const std::string& file) {
  const cairn::ZipReader zip(cairn::memory_source(as_bytes(file)), {.allow_deflate = true});
  Json entries = Json::array();
  for (const cairn::ZipEntry& e : zip.entries()) {
    zip.verify(e);
    entries.push_back({e.name, e.data_offset, e.size, e.stored_size, e.crc, e.deflated});
  }
  return {{"entries", std::move(entries)}};
}

// Whether a value is what it was in Python: objects nobody knows are not.
bool is_plain(const cairn::Value& value) {
  if (value.is<cairn::Opaque>()) return false;
  bool plain = true;
  if (const auto* list = value.get_if<cairn::List>())
    for (const cairn::Value& v : *list) plain = plain && is_plain(v);
  if (const auto* tuple = value.get_if<cairn::Tuple>())
    for (const cairn::Value& v : tuple->items) plain = plain && is_plain(v);
  if (const auto* dict = value.get_if<cairn::Dict>())
    for (const auto& [key, v] : *dict) plain = plain && is_plain(v);
  return plain;
}

Json read_pickle(const std::string& program) {
  cairn::pickle::Options options;
  const cairn::pickle::Graph graph = cairn::pickle::read(*cairn::memory_source(as_bytes(program)), options);
  const cairn::Value value = cairn::pickle::to_value(graph, graph.root(), {});
  Json at = Json::array();
  std::uint64_t place = 0;
  while (const auto instruction = cairn::pickle::decode(program, place)) {
    at.push_back({cairn::pickle::facts_of(instruction->op).name, instruction->at});
    place = instruction->next;
  }
  Json shown = is_plain(value) ? Json(cairn::to_string(value, program.size() * 64)) : Json();
  return {{"at", std::move(at)}, {"value", std::move(shown)}};
}

Json read_safetensors(const std::string& file) {
  const auto header = cairn::read_safetensors_header(*cairn::memory_source(as_bytes(file)));
  Json tensors = Json::array();
  for (const cairn::SafetensorsEntry& e : header.tensors) {
    const std::vector<std::int64_t> shape(e.shape.begin(), e.shape.end());
    tensors.push_back(
        {e.name, cairn::safetensors_name(e.dtype).value_or("?"), shape, e.offset, e.offset + e.bytes});
  }
  return {{"tensors", std::move(tensors)}, {"metadata", header.metadata}};
}

Json read_index(const std::string& text) {
  const auto index = cairn::read_safetensors_index(*cairn::memory_source(as_bytes(text)));
  return {{"weight_map", index.weight_map}, {"total_size", index.total_size}};
}

Json read_sharding(const std::string& text) {
  std::map<std::string, std::vector<std::int64_t>> sorted;
  for (const auto& [name, at] : cairn::parse_sharding_info(text, {}))
    sorted.emplace(name, std::vector<std::int64_t>(at.begin(), at.end()));
  Json offsets = Json::array();
  for (const auto& [name, at] : sorted) offsets.push_back({name, at});
  return {{"offsets", std::move(offsets)}};
}

Json read_json(const std::string& text) {
  if (!cairn::is_utf8(text)) throw cairn::Error(cairn::ErrorCode::kCorrupt, "no UTF-8");
  cairn::JsonScanner scan(text, 0, "the text");
  scan.skip_value(Limits().json_depth);
  scan.finish();
  return Json::object();
}

Json read_as(char kind, const std::string& file) {
  try {
    switch (kind) {
      case 'z': return read_zip(file);
      case 'p': return read_pickle(file);
      case 's': return read_safetensors(file);
      case 'i': return read_index(file);
      case 'h': return read_sharding(file);
      case 'j': return read_json(file);
      default: throw cairn::Error(cairn::ErrorCode::kInvalidArgument, "no such kind");
    }
  } catch (const cairn::Error& e) {
    return {{"error", std::string(cairn::name_of(e.code()))}, {"message", e.what()}};
  }
}

bool take(void* to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

}  // namespace

int probe_read(int argc, char**) {
  if (argc != 1) return 2;
  char kind = 0;
  std::uint32_t length = 0;
  while (take(&kind, 1) && take(&length, sizeof length)) {
    std::string file(length, '\0');
    if (!take(file.data(), length)) return 1;
    const std::string line = read_as(kind, file).dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) return 1;
    std::fflush(stdout);
  }
  return 0;
}
