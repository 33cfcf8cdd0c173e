#include "format/hf_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace cairn {
namespace {

// Takes `word` and a number of at least five digits off the front.
bool take_numbered(std::string_view& name, std::string_view word) {
  if (!name.starts_with(word)) return false;
  name.remove_prefix(word.size());
  const auto digits = static_cast<std::size_t>(
      std::find_if(name.begin(), name.end(), [](char c) { return c < '0' || c > '9'; }) - name.begin());
  name.remove_prefix(digits);
  return digits >= 5;
}

}  // namespace

std::string hf_file_name(int index, int largest, int shard) {
  const std::string model = fmt::format("model-{:05}-of-{:05}{}", index, largest, kSafetensorsEnding);
  return shard == 0 ? model : fmt::format("shard-{:05}-{}", shard, model);
}

bool is_hf_shard(std::string_view name) {
  return take_numbered(name, "shard-") && take_numbered(name, "-model-") && take_numbered(name, "-of-") &&
         name == kSafetensorsEnding;
}

}  // namespace cairn
