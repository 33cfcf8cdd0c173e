// What the files of a Hugging Face directory are called, and what DCP notes in their headers.
#pragma once

#include <string>
#include <string_view>

namespace cairn {

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSafetensorsEnding = ".safetensors";

// Keys and values of "__metadata__", besides kShardingInfoKey.
inline constexpr std::string_view kHfVersionKey = "DCP_VERSION";
inline constexpr std::string_view kHfVersion = "1.0";
inline constexpr std::string_view kHfFormatKey = "format";
inline constexpr std::string_view kHfFormat = "pt";

// "model-00001-of-00004.safetensors"; `shard` 0, or "shard-00003-model-00001-of-00004.safetensors". Numbers
// count from 1.
std::string hf_file_name(int index, int largest, int shard = 0);

// Whether it is the name of one rank's shard, as hf_file_name makes them.
bool is_hf_shard(std::string_view name);

}  // namespace cairn
