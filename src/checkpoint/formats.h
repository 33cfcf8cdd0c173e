// The four formats behind Checkpoint, one opener each. open.cc decides which.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/source.h"
#include "cairn/checkpoint.h"
#include "cairn/storage.h"
#include "format/hf_names.h"  // kIndexFile
#include "format/torch_file.h"
#include "state/entries.h"

namespace cairn {

class SourceChecks;

// The parts of a torch.save file; null for other formats.
struct TorchParts {
  const TorchFile* file = nullptr;
  const std::vector<EntryView>* entries = nullptr;
};

// What a format tells those who read a whole checkpoint, beyond what Checkpoint tells everybody.
class StoredCheckpoint : public Checkpoint {
 public:
  // An object as it is stored, its transforms undone: a whole archive of torch.save. Null where objects are
  // not stored one by one.
  virtual std::shared_ptr<const ByteSource> object_archive(std::string_view /*name*/) const {
    return nullptr;
  }
  virtual TorchParts torch_parts() const { return {}; }
  // Tensors that an index names and no file has, with the file they should be in.
  virtual std::vector<std::pair<std::string, std::string>> missing_tensors() const { return {}; }
};

// How checkpoints are opened for reading: links to files are followed, and reads go through the page cache,
// since they are small and come back.
inline constexpr FileSystemOptions kForReading{.io = IoPath::kBuffered, .follow_links = true};

// As Checkpoint::open. With `checks`, what is read of the tensors is compared with the checkpoint's own
// checksums, and its archives stay open from one read to the next: for those who read all of it in parts.
std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::string& url, const Limits& limits,
                                                  const std::shared_ptr<SourceChecks>& checks);

// What was found there, which must be something.
std::unique_ptr<StoredCheckpoint> open_place(const Place& place, const Limits& limits,
                                             const std::shared_ptr<SourceChecks>& checks);

// `metadata_files`: ".metadata", or every rank's own "__{rank}.metadata".
std::unique_ptr<StoredCheckpoint> open_dcp(std::shared_ptr<const FileSystem> folder,
                                           const std::vector<std::string>& metadata_files,
                                           const Limits& limits, std::shared_ptr<SourceChecks> checks);

// Errors of these two say which file: the source's name.
std::unique_ptr<StoredCheckpoint> open_torch_checkpoint(std::shared_ptr<const ByteSource> source,
                                                        const Limits& limits,
                                                        std::shared_ptr<SourceChecks> checks);
std::unique_ptr<StoredCheckpoint> open_safetensors(const std::shared_ptr<const ByteSource>& source,
                                                   const Limits& limits);

// The files that the index names, or without an index every *.safetensors file.
std::unique_ptr<StoredCheckpoint> open_hugging_face(std::shared_ptr<const FileSystem> folder,
                                                    const Limits& limits);

// The last step of a path: "a/b.pt" -> "b.pt".
std::string_view base_name(std::string_view path);

}  // namespace cairn
