// What lies in a checkpoint's directory, set against what the checkpoint refers to.
#pragma once

#include <string_view>
#include <vector>

#include "cairn/checkpoint.h"
#include "cairn/storage.h"

namespace cairn {

// Completes `files` (names and `needed`, each referenced) with the sizes found in the folder, and adds the
// files that nobody refers to. One listing for each folder that is named.
void add_listing(const FileSystem& folder, std::vector<FileSummary>& files);

}  // namespace cairn
