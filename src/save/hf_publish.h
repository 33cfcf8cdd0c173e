// The last step of a save to a Hugging Face directory.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/checkpoint_storage.h"

namespace cairn {

// What a rank tells the coordinator: the names its files have now, and those they are to get.
using HfRenames = std::vector<std::pair<std::string, std::string>>;
std::string encode_renames(const HfRenames& renames);
HfRenames decode_renames(std::string_view text);  // Error(kCorrupt) for text that no rank sends

// The safetensors files beside the index that it names, as far as they are there; none without an index, or
// with one that cannot be read.
std::set<std::string> named_by_index(const FileSystem& files);

// Gives the files of all ranks their names, writes the index unless there are shards, and removes what
// readers would take for a part of the new checkpoint: files of the old index, or older shards and the index.
void publish_hf(FileSystem& files, bool sharded, bool durable, const std::vector<WrittenData>& all);

}  // namespace cairn
