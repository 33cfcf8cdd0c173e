// What every rank has to know of a directory of safetensors files: its headers, as bytes that travel from the
// rank that read them to the others, and as the metadata of a checkpoint.
#pragma once

#include <string>
#include <string_view>

#include "cairn/limits.h"
#include "cairn/metadata.h"
#include "cairn/storage.h"

namespace cairn {

// Which files count is said in hugging_face.h. Error(kNotFound) when there is none, or one of those that the
// index names is not there; kCorrupt for headers and indexes that break their rules, or contradict each
// other.
std::string fetch_hf_description(const FileSystem& files, const Limits& limits);

// The places in storage_data are those of the elements. `root` is what to call the directory in messages.
Metadata read_hf_description(std::string_view bytes, const std::string& root, const Limits& limits);

}  // namespace cairn
