// The last step of a save: the new checkpoint appears in the place of the old one, in one step.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "checkpoint/rank_sets.h"
#include "format/manifest.h"

namespace cairn {

class LiveFiles;

// One save's claim on a directory, from its first byte to its last. Used by one thread.
class Publication {
 public:
  // Takes the lock. Error(kConflict) when another save has it, or when there is a checkpoint and it may not
  // be replaced. `rank` is given in rank-local saves, by one of `ranks`, which may know a name for this
  // attempt.
  Publication(FileSystem& files, const SaveId& save, const WriteOptions& options, std::optional<int> rank,
              int ranks = 1, const SaveId& attempt = {});

  // There will be no manifest: not all checksums are known.
  void leave_out_sums() { options_.checksums = false; }

  // Everything the metadata names is durable. Writes the manifest (unless checksums are off) and the
  // metadata, which becomes part of the manifest, then removes what is no longer needed. When it throws
  // before the metadata appeared, the old checkpoint is as it was. `warnings` gets what the user should know.
  void publish(Metadata& metadata, std::vector<ManifestFile> written,
               std::chrono::steady_clock::time_point deadline, std::vector<std::string>& warnings);

  // In rank-local saves, after publish(): when every rank has published, their set takes the place of what
  // was here before. The last rank's publish() has seen to it already, unless it saw an old list of
  // files, or somebody held a lock. Error(kConflict) when the set does not stand nevertheless.
  void complete();
  // The same, and false instead of an error.
  bool stands();

 private:
  void require_replaceable() const;
  void describe(Metadata& metadata) const;
  void require_coming();
  bool is_coming();
  void write_metadata(const std::string& name, std::string_view bytes,
                      std::chrono::steady_clock::time_point deadline, std::vector<std::string>& warnings);
  void require_unchanged() const;
  void remember_torch_files();
  void remember_replaced();
  void remove_old_files(std::string_view published, const Metadata& metadata) noexcept;
  void add_own_metadata(LiveFiles& live) const;
  std::set<SaveId> own_saves(const std::vector<FileEntry>& all) const;
  bool is_foreign_data(const FileEntry& entry, const std::set<SaveId>& own) const;
  std::vector<std::string> files_to_remove(const std::vector<FileEntry>& all, const Metadata& metadata,
                                           bool exclusive);

  FileSystem& files_;
  SaveId save_;
  WriteOptions options_;
  std::optional<int> rank_;
  int ranks_;
  SaveId attempt_;
  NextSet next_;  // of a rank-local save
  std::unique_ptr<FileLock> lock_;
  bool replaces_ = false;                 // there was a checkpoint at the start
  std::optional<std::string> version_;    // of its metadata
  std::vector<std::string> torch_files_;  // that it names, with names torch gave them
  std::vector<std::string> replaced_;  // all that it names, remembered where others may be at work here too
};

// Whether the checkpoint in `files` is the one that `save` wrote.
bool is_published_by(const FileSystem& files, const SaveId& save, std::optional<int> rank);

}  // namespace cairn
