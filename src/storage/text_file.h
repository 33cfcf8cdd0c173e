// Texts that people write: no files of a checkpoint.
#pragma once

#include <string>

namespace cairn {

// The whole text at a path or URL; on a disk also what is no regular file, like a pipe. Error(kNotFound).
std::string read_text(const std::string& url);

}  // namespace cairn
