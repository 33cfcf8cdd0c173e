// Checkpoints of some KiB that say which version they are: what the trials save, and what they look for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cairn/cairn.h"
#include "cairn/storage.h"
#include "promise.h"

namespace cairn::trial {

// How a checkpoint is cut into files.
struct Cut {
  int ranks = 2;
  int files_per_rank = 2;
  bool strong_hashes = false;
  bool checksums = true;
  int data_files() const { return ranks * files_per_rank; }
};

// Saves, with a thread for each rank; `done` is called by each when its save has returned. Of what the ranks
// throw, the lowest rank's error comes out.
void save_version(const std::string& directory, int version, const Cut& cut,
                  const std::function<void()>& done = {});
void save_version(const std::shared_ptr<FileSystem>& files, int version, const Cut& cut);

// The tensors alone, as safetensors files with an index; by one rank.
void save_hugging_face(const std::string& directory, int version, int files);

// Turns a checkpoint of ours into one as stock PyTorch writes it: other names, no manifest.
void make_stock(FileSystem& files);

// The version that is there, all its bytes read, verified and compared; nullopt when there is none. Throws
// when it is not whole.
std::optional<int> version_in(const std::shared_ptr<const FileSystem>& files);
std::optional<int> version_in(const std::string& directory);

// Nothing but one checkpoint is there: no file of a dead save.
void check_clean(const FileSystem& files, const Cut& cut);

}  // namespace cairn::trial
