// Names of files in a FileSystem.
#pragma once

#include <string>
#include <string_view>

namespace cairn {

// Error(kInvalidArgument) unless `name` is one step of a path.
void check_file_name(std::string_view name);

// Error(kCorrupt) unless it is a relative path without "." or ".." steps.
void check_steps(std::string_view relative);

// What a file is called while it is being written; different at every call.
std::string partial_name(std::string_view name);
// What a partial file was going to be called; any other name as it is.
std::string final_name_of(std::string_view name);

}  // namespace cairn
