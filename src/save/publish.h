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

  // There will be no manifest: not all checksums are known.
  void leave_out_sums() { options_.checksums = false; }

  // Everything the metadata names is durable. Writes the manifest (unless checksums are off) and the
  // metadata, which becomes part of the manifest, then removes what is no longer needed. When it throws
  // before the metadata appeared, the old checkpoint is as it was. `warnings` gets what the user should know.
  void publish(Metadata& metadata, std::vector<ManifestFile> written,
               std::chrono::steady_clock::time_point deadline, std::vector<std::string>& warnings);

 private:
  void require_replaceable() const;
  void describe(Metadata& metadata) const;
  void write_metadata(const std::string& name, std::string_view bytes,
                      std::chrono::steady_clock::time_point deadline, std::vector<std::string>& warnings);
  void require_unchanged() const;
  void remember_torch_files();
  void remember_replaced();
  void remove_old_files(std::string_view published, const Metadata& metadata) noexcept;
  std::vector<std::string> files_to_remove(const std::vector<FileEntry>& all, const Metadata& metadata,
                                           bool exclusive);

  FileSystem& files_;
  SaveId save_;
  WriteOptions options_;
  std::optional<int> rank_;
  std::unique_ptr<FileLock> lock_;
  bool replaces_ = false;                 // there was a checkpoint at the start
  std::optional<std::string> version_;    // of its metadata
  std::vector<std::string> torch_files_;  // that it names, with names torch gave them
  std::vector<std::string> replaced_;  // all that it names, remembered where others may be at work here too
};

// The checkpoint of all ranks together that a rank-local save finds, and takes the place of once every rank
// has published its own.
class EarlierCollective {
 public:
  // Notes what is there now.
  EarlierCollective(FileSystem& files, bool durable);
  // Removes its metadata, durably, then the files that only it named. Leaves one alone that came later, or
  // that another save is replacing.
  void retire();

 private:
  FileSystem& files_;
  bool durable_;
  bool there_;
  std::optional<std::string> version_;
};

// Whether the checkpoint in `files` is the one that `save` wrote.
bool is_published_by(const FileSystem& files, const SaveId& save, std::optional<int> rank);

}  // namespace cairn
