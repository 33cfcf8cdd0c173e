#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "format/json_scanner.h"
#include "format/names.h"
#include "format/safetensors.h"

namespace cairn {
namespace {

// A whole number, also when written as 1.5e10: some tools leave the size as a float.
std::uint64_t parse_total_size(JsonScanner& scan) {
  const std::string_view text = scan.number();
  std::uint64_t whole = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, whole);
  if (failure == std::errc() && stop == end) return whole;
  double value = -1;
  std::from_chars(text.data(), end, value);
  if (!(value >= 0) || value != std::floor(value))
    scan.fail("has a total_size that is not a number of bytes");
  if (value > 9007199254740992.0) throw Error(ErrorCode::kLimit, "the index has a total_size above 2^53");
  return static_cast<std::uint64_t>(value);
}

class IndexParser {
 public:
  IndexParser(std::string_view text, const Limits& limits) : scan_(text, 0, "the index"), limits_(limits) {}

  SafetensorsIndex parse() {
    bool has_map = false;
    each_member([&](std::string_view key) {
      if (key == "weight_map") {
        has_map = true;
        parse_weight_map();
      } else if (key == "metadata" && scan_.next_is('{')) {
        parse_metadata();
      } else {
        scan_.skip_value(depth_inside(1));
      }
    });
    scan_.finish();
    if (!has_map) scan_.fail("has no weight_map");
    return std::move(index_);
  }

 private:
  // How much deeper it may go inside `open` containers.
  std::uint32_t depth_inside(std::uint32_t open) const {
    return limits_.json_depth - std::min(limits_.json_depth, open);
  }

  // An object whose keys must be unique. member(key) reads the value; a key lives until then.
  template <class Member> void each_member(Member member) {
    std::vector<std::string> keys;
    scan_.object([&](std::string_view key) {
      const std::string& kept = keys.emplace_back(key);
      member(std::string_view(kept));
    });
    refuse_duplicate(keys.size(), [&](std::size_t i) { return std::string_view(keys[i]); });
  }

  template <class KeyAt> void refuse_duplicate(std::size_t count, KeyAt key_at) const {
    if (const auto twice = find_duplicate(count, key_at)) {
      scan_.fail(fmt::format("has the key '{}' twice in one object", key_at(*twice)));
    }
  }

  void parse_metadata() {
    each_member([&](std::string_view key) {
      if (key == "total_size") {
        index_.total_size = parse_total_size(scan_);
      } else {
        scan_.skip_value(depth_inside(2));
      }
    });
  }

  void parse_weight_map() {
    auto& map = index_.weight_map;
    scan_.object([&](std::string_view key) {
      map.emplace_back().first = key;
      const std::string_view file = scan_.string();
      try {
        check_relative_path(file, limits_);
      } catch (Error& e) {
        e.of_tensor(map.back().first);
        throw;
      }
      map.back().second = file;
    });
    refuse_duplicate(map.size(), [&](std::size_t i) { return std::string_view(map[i].first); });
  }

  JsonScanner scan_;
  const Limits& limits_;
  SafetensorsIndex index_;
};

}  // namespace

SafetensorsIndex read_safetensors_index(const ByteSource& source, const Limits& limits) {
  if (source.size() > limits.json_bytes) {
    throw Error(ErrorCode::kLimit, fmt::format("the index has {} bytes, more than the {} allowed",
                                               source.size(), limits.json_bytes));
  }
  const std::string text = read_all(source);
  if (!is_utf8(text)) throw Error(ErrorCode::kCorrupt, "the index is not UTF-8");
  return IndexParser(text, limits).parse();
}

// The bytes that Python's json.dump(..., indent=2) makes of it.
std::string write_safetensors_index(const SafetensorsIndex& index) {
  const auto name_at = [&](std::size_t i) { return std::string_view(index.weight_map[i].first); };
  if (const auto twice = find_duplicate(index.weight_map.size(), name_at)) {
    throw Error(ErrorCode::kInvalidArgument, "the index has this name twice").of_tensor(name_at(*twice));
  }
  std::string json = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", index.total_size);
  const char* separator = "\n    ";
  for (const auto& [name, file] : index.weight_map) {
    if (!is_utf8(name) || !is_utf8(file)) {
      throw Error(ErrorCode::kInvalidArgument, "the index can hold only names in UTF-8").of_tensor(name);
    }
    json += separator;
    append_json_string(json, name, JsonText::kAscii);
    json += ": ";
    append_json_string(json, file, JsonText::kAscii);
    separator = ",\n    ";
  }
  json += index.weight_map.empty() ? "}\n}" : "\n  }\n}";
  return json;
}

}  // namespace cairn
