// What lies in a checkpoint's directory, set against what the checkpoint refers to.
#pragma once

#include <string_view>
#include <vector>

#include "base/directory.h"
#include "cairn/checkpoint.h"

namespace cairn {

// Completes `files` (names and `needed`, each referenced) with the sizes found in the directory, and adds
// the files that nobody refers to. One listing for each folder that is named; links count as missing
// unless they are followed.
void add_directory_listing(const Directory& directory, Links links, std::vector<FileSummary>& files);

}  // namespace cairn
