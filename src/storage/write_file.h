// A file that is written in one go.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "cairn/storage.h"

namespace cairn {

inline void write_file(FileSystem& files, std::string_view name, std::string_view bytes, CreateOptions how) {
  how.size = bytes.size();
  const auto file = files.create(name, how);
  file->write_at(0, as_bytes(bytes));
  file->commit();
}

}  // namespace cairn
