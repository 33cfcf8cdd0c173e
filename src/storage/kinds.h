// The kinds of file systems behind file_system_of: what each makes of the part of a URL after "scheme://".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cairn/storage.h"

namespace cairn {

Place find_on_disk(const std::string& path, const FileSystemOptions& options);  // posix.cc

// "name/folder/file"                                                               memory.cc
std::unique_ptr<FileSystem> shared_memory_folder(const std::string& rest, const FileSystemOptions& options);
Place find_in_memory(const std::string& rest, const FileSystemOptions& options);

// "bucket/run/step-1000"; "host/run/step-1000"    s3/file_system.cc and s3/web_folder.cc;
//                                                 no_object_stores.cc where they are left out
std::unique_ptr<FileSystem> object_store_folder(const std::string& rest, const FileSystemOptions& options);
Place find_in_object_store(const std::string& rest, const FileSystemOptions& options);
std::unique_ptr<FileSystem> web_folder(std::string_view scheme, const std::string& rest,
                                       const FileSystemOptions& options);
Place find_on_the_web(std::string_view scheme, const std::string& rest, const FileSystemOptions& options);

// "%20" is a space. Error(kInvalidArgument) names the URL that it is of.
std::string percent_decoded(const std::string& url, std::string_view text);

// Of a path with slashes: the folder, and the last step.
UrlParts split_path(std::string path);

}  // namespace cairn
