// One file by its path, for tests that look at bytes.
#pragma once

#include <memory>
#include <string>

#include "base/source.h"
#include "cairn/error.h"
#include "cairn/storage.h"

namespace cairn {

inline std::shared_ptr<const ByteSource> open_file(const std::string& path) {
  const UrlParts parts = split_url(path);
  return posix_file_system(parts.folder, {.io = IoPath::kBuffered, .follow_links = true})->open(parts.name);
}

}  // namespace cairn
