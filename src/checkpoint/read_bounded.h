// Files that are read whole, if they are not larger than they may be.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/source.h"
#include "cairn/error.h"
#include "cairn/storage.h"

namespace cairn {

// Error(kLimit), before anything is allocated, for a file of more than `most` bytes.
inline std::string read_bounded(const FileSystem& files, std::string_view name, std::uint64_t most) {
  const std::shared_ptr<const ByteSource> source = files.open(name);
  if (source->size() > most) {
    throw Error(ErrorCode::kLimit,
                fmt::format("the file has {} bytes, more than the {} allowed", source->size(), most))
        .in_file(source->name());
  }
  return read_all(*source);
}

}  // namespace cairn
