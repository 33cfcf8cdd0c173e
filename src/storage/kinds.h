// The kinds of file systems behind file_system_of: what each makes of the part of a URL after "scheme://".
#pragma once

#include <memory>
#include <string>

#include "cairn/storage.h"

namespace cairn {

Place find_on_disk(const std::string& path, const FileSystemOptions& options);  // posix.cc

// "name/folder/file"                                                               memory.cc
std::unique_ptr<FileSystem> shared_memory_folder(const std::string& rest, const FileSystemOptions& options);
Place find_in_memory(const std::string& rest, const FileSystemOptions& options);

// "bucket/run/step-1000"                          s3/file_system.cc; no_object_stores.cc where that is left
// out
std::unique_ptr<FileSystem> object_store_folder(const std::string& rest, const FileSystemOptions& options);
Place find_in_object_store(const std::string& rest, const FileSystemOptions& options);

// Of a path with slashes: the folder, and the last step.
UrlParts split_path(std::string path);

}  // namespace cairn
