// Which files a dead save has left behind.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/seeded_hash.h"
#include "cairn/metadata.h"
#include "cairn/storage.h"

namespace cairn {

// The files and saves that descriptions refer to: these stay.
class LiveFiles {
 public:
  void add(const Metadata& metadata);
  void add_save(const SaveId& save) { saves_.insert(save); }
  void add_file(const std::string& name) { names_.insert(name); }

  bool has_file(const std::string& name) const { return names_.contains(name); }
  bool has_save(const SaveId& save) const { return saves_.contains(save); }

 private:
  SetOfNames<std::string> names_;
  std::set<SaveId> saves_;
};

// Of the files in a directory those that carry our marks and belong to no live save: half-written ones,
// claims, and data, manifests and metadata with a save id. Locks are not among them: whoever wants one gone
// takes it. Right only while no save is under way. With `rank` only files of this rank's own.
std::vector<FileEntry> find_debris(std::span<const FileEntry> files, const LiveFiles& live,
                                   std::optional<int> rank = std::nullopt);

}  // namespace cairn
