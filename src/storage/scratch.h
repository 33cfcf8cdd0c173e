// Room on a disk for what does not fit into memory: no files of a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "cairn/source.h"
#include "storage/descriptor.h"

namespace cairn {

// A file without a name, which is gone when it is closed. Errors name the directory.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& directory);

  void append(ByteSpan bytes);
  // What was appended, to be read under that name in messages. Call once, last.
  std::shared_ptr<const ByteSource> take(const std::string& name);

 private:
  std::string directory_;
  Descriptor file_;
  std::uint64_t size_ = 0;
};

// A directory to make scratch files in: the nearest one above `url` that is there, since that is where much
// is about to be written anyhow; the system's own for URLs that are not on a disk, and for none.
std::string scratch_directory(const std::string& url = "");

}  // namespace cairn
