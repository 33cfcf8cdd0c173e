// A new file in a directory of the operating system.
#pragma once

#include <memory>
#include <string_view>

#include "cairn/storage.h"
#include "storage/directory.h"
#include "storage/uring.h"

namespace cairn {

// FileSystem::create for a directory. The name has been checked.
std::unique_ptr<FileWriter> posix_writer(std::shared_ptr<const Directory> directory, std::string_view name,
                                         const CreateOptions& options, IoPath io,
                                         std::shared_ptr<UringPool> rings);

}  // namespace cairn
