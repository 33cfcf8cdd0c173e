// The last step of a save: the new checkpoint appears in the place of the old one, in one rename.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "format/manifest.h"

namespace cairn {

// One save's claim on a directory, from its first byte to its last. Used by one thread.
class Publication {
 public:
  // Takes the lock. Error(kConflict) when another save has it, or when there is a checkpoint and it may not
  // be replaced. `rank` is given in rank-local saves.
  Publication(FileSystem& files, const SaveId& save, const WriteOptions& options, std::optional<int> rank);

  // Everything the metadata names is durable. Writes the manifest (unless checksums are off) and the
  // metadata, which becomes part of the manifest, then removes what is no longer needed. When it throws
  // before the metadata appeared, the old checkpoint is as it was.
  void publish(Metadata& metadata, std::vector<ManifestFile> written,
               std::chrono::steady_clock::time_point deadline);

 private:
  void describe(Metadata& metadata) const;
  void write(const std::string& name, std::string_view bytes, bool replace);
  void remember_old_files();
  void remove_old_files(const Metadata& published) noexcept;

  FileSystem& files_;
  SaveId save_;
  const WriteOptions options_;
  std::optional<int> rank_;
  std::unique_ptr<FileLock> lock_;
  std::vector<std::string> torch_files_;  // of the checkpoint that is replaced, with names torch gave them
};

// Whether the checkpoint in `files` is the one that `save` wrote.
bool is_published_by(const FileSystem& files, const SaveId& save, std::optional<int> rank);

}  // namespace cairn
