// The data files of one checkpoint, opened when first needed and kept open while in use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/seeded_hash.h"
#include "cairn/limits.h"
#include "cairn/storage.h"

namespace cairn {

// May be used by many threads at once. Keeps at most `capacity` files open beyond those that somebody is
// reading, so that a checkpoint of ten thousand files does not run out of descriptors.
class OpenFiles {
 public:
  // What a file looks like to those who get it: the file itself, or something that reads from it.
  using Wrap = std::function<std::shared_ptr<const ByteSource>(const std::string& name,
                                                               std::shared_ptr<const ByteSource> file)>;

  OpenFiles(std::shared_ptr<const FileSystem> root, const Limits& limits, std::size_t capacity = 64,
            Wrap wrap = {});

  // A file by its name in the checkpoint. Error kCorrupt for a name that could lead elsewhere, and
  // whatever opening it gives.
  std::shared_ptr<const ByteSource> get(const std::string& name) const;

  const FileSystem& root() const { return *root_; }
  const Limits& limits() const { return limits_; }

 private:
  struct Kept {
    std::shared_ptr<const ByteSource> file;
    std::uint64_t last_use = 0;
  };
  void drop_oldest() const;

  std::shared_ptr<const FileSystem> root_;
  Limits limits_;
  std::size_t capacity_;
  Wrap wrap_;
  mutable std::mutex mutex_;
  mutable MapByName<std::string, Kept> kept_;
  mutable std::uint64_t uses_ = 0;
};

}  // namespace cairn
