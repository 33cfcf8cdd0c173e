// Which part of a tensor a safetensors file holds, as DCP's Hugging Face writer notes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"
#include "cairn/limits.h"
#include "cairn/tensor.h"

namespace cairn {

inline constexpr std::string_view kShardingInfoKey = "DCP_SHARDING_INFO";

// Offsets by tensor name, from {"name": {"saved_offsets": [0, 8]}, ...}. Error kCorrupt when the text is
// of another form, has a negative offset, or names a tensor twice.
MapByName<std::string, Shape> parse_sharding_info(std::string_view json, const Limits& limits);

// The inverse, in the order given.
std::string write_sharding_info(const std::vector<std::pair<std::string, Shape>>& offsets);

}  // namespace cairn
