// Locks in a directory of the operating system.
#pragma once

#include <memory>
#include <string_view>

#include "cairn/storage.h"
#include "storage/directory.h"

namespace cairn {

// FileSystem::lock for a directory: an flock on a file of that name, which is removed again. The file says
// who has it, so that whoever comes second can be told.
std::unique_ptr<FileLock> posix_lock(const std::shared_ptr<const Directory>& directory,
                                     std::string_view name);

}  // namespace cairn
