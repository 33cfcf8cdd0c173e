#include "format/sharding_info.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "format/json_scanner.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

// Takes the events of the JSON reader one by one: nothing is built but the result, and the nesting is
// known, so neither depth nor size can run away.
class InfoReader final : public nlohmann::json_sax<Json> {
 public:
  explicit InfoReader(const Limits& limits) : limits_(limits) {}

  MapByName<std::string, Shape> offsets;

  bool start_object(std::size_t) override {
    if (++depth_ > 2 || in_list_) fail("an object nested too deeply");
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !has_offsets_) fail(fmt::format("'{}' has no saved_offsets", name_.substr(0, 256)));
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) {
      name_ = text;
      has_offsets_ = false;
      if (offsets.contains(name_)) fail(fmt::format("'{}' appears twice", name_.substr(0, 256)));
    } else {
      wanted_ = text == "saved_offsets";
    }
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_list_) fail("a list where none belongs");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    if (!wanted_) return true;
    if (has_offsets_) fail(fmt::format("'{}' has saved_offsets twice", name_.substr(0, 256)));
    has_offsets_ = true;
    offsets.emplace(name_, Shape(std::span<const std::int64_t>(list_)));
    list_.clear();
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (!wanted_ || !in_list_) return other();
    if (n > static_cast<number_unsigned_t>(INT64_MAX)) fail("an offset does not fit in 63 bits");
    if (list_.size() >= limits_.tensor_rank) fail("an offset has too many dimensions");
    list_.push_back(static_cast<std::int64_t>(n));
    return true;
  }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool string(string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) override {
    throw Error(ErrorCode::kCorrupt, fmt::format("{} is not JSON at its character {}", kShardingInfoKey, at));
  }

 private:
  // Attributes we do not know are passed over, but only where an attribute may be.
  bool other() {
    if (depth_ != 2 || wanted_) fail("a value that is no list of offsets");
    return true;
  }
  [[noreturn]] static void fail(const std::string& what) {
    throw Error(ErrorCode::kCorrupt, fmt::format("{}: {}", kShardingInfoKey, what));
  }

  const Limits& limits_;
  int depth_ = 0;
  bool in_list_ = false;
  bool wanted_ = false;
  bool has_offsets_ = false;
  std::string name_;
  std::vector<std::int64_t> list_;
};

}  // namespace

MapByName<std::string, Shape> parse_sharding_info(std::string_view json, const Limits& limits) {
  InfoReader reader(limits);
  // The JSON reader takes a NUL for the end of the text, and passes over a byte order mark; Python's does
  // neither.
  if (json.find('\0') != json.npos || json.starts_with("\xef\xbb\xbf"))
    throw Error(ErrorCode::kCorrupt, fmt::format("{} is not JSON", kShardingInfoKey));
  Json::sax_parse(json, &reader);
  return std::move(reader.offsets);
}

std::string write_sharding_info(const std::vector<std::pair<std::string, Shape>>& offsets) {
  std::string json = "{";
  for (const auto& [name, at] : offsets) {
    if (json.size() > 1) json += ", ";
    append_json_string(json, name, JsonText::kAscii);
    json += fmt::format(": {{\"saved_offsets\": [{}]}}", fmt::join(at.begin(), at.end(), ", "));
  }
  return json + "}";
}

}  // namespace cairn
