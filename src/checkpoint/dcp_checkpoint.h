// A DCP directory behind the Checkpoint interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/pod_vector.h"
#include "cairn/checkpoint.h"
#include "checkpoint/formats.h"
#include "checkpoint/open_files.h"
#include "checkpoint/open_items.h"
#include "reading/source_checks.h"

namespace cairn {

// One Metadata from every rank's own: chunks of one tensor side by side, storage places joined. What
// several ranks have (replicated tensors, objects) counts once, from the first rank that has it. Error
// kCorrupt when ranks disagree on what a name is. Takes them in rank order; must not be empty.
Metadata merge_rank_local(std::vector<Metadata> ranks);

// The same as one rank sees it, whose part is ranks[own]: what it has itself is its own. Chunks of the others
// fill in what it lacks of a tensor of the same size and type; what contradicts it is ignored, and so are
// names that it does not have and on which the others disagree.
Metadata merge_for_rank(std::vector<Metadata> ranks, std::size_t own);

// For each entry of state_dict_metadata: how many files hold it, and the length of its first stored item.
struct StoredExtent {
  std::uint32_t files = 0;
  std::uint64_t first_length = 0;
};
PodVector<StoredExtent> stored_extents(const Metadata& metadata);

struct DcpFactsInput {
  const Metadata& metadata;
  std::size_t metadata_files = 1;
  bool rank_local = false;  // each rank wrote a metadata file of its own
  bool has_manifest = false;
};
std::vector<std::pair<std::string, std::string>> dcp_facts(const DcpFactsInput& input);

// The rank in "__{rank}_{n}.distcp" or "__{rank}.metadata"; nullopt for other names.
std::optional<std::uint64_t> rank_in_name(std::string_view name);

class DcpCheckpoint final : public StoredCheckpoint {
 public:
  // `manifests` are the names of those that the metadata files ask for.
  DcpCheckpoint(std::shared_ptr<const FileSystem> folder, Metadata metadata,
                std::vector<std::string> metadata_files, const Limits& limits,
                std::vector<std::string> manifests = {}, std::shared_ptr<SourceChecks> checks = nullptr);

  Format format() const override { return Format::kDcp; }
  const std::vector<TensorSummary>& tensors() const override { return tensors_; }
  const std::vector<ObjectSummary>& objects() const override { return objects_; }
  std::vector<ChunkPlace> chunks(std::size_t tensor) const override;
  std::vector<FileSummary> files() const override;
  std::vector<std::pair<std::string, std::string>> facts() const override;
  const Metadata* metadata() const override { return &metadata_; }
  Tensor read_at(std::size_t tensor, const Selection& selection) const override;
  void read_into(std::size_t tensor, const Selection& selection, const TensorView& to) const override;
  Value object(std::string_view name) const override;
  std::shared_ptr<const ByteSource> object_archive(std::string_view name) const override;

 private:
  class Reader;

  // A stored item: its bytes with transforms undone, and where they begin in their file.
  struct Item {
    std::shared_ptr<const ByteSource> bytes;
    std::uint64_t offset_in_file = 0;
    bool transformed = false;
  };
  std::shared_ptr<const ByteSource> stored_bytes_of(std::size_t entry) const;
  Item open_item(std::size_t entry, std::uint64_t max_bytes) const;
  std::shared_ptr<const OpenItem> open_chunk(std::size_t entry, const Box& box, DType dtype) const;
  void summarize();
  const TensorStorageMetadata& tensor_metadata(std::size_t tensor) const;

  Metadata metadata_;
  std::vector<std::string> metadata_files_;
  std::vector<std::string> manifests_;
  std::shared_ptr<SourceChecks> checks_;           // null: only what comes along is checked
  mutable std::unique_ptr<OpenItems> open_items_;  // with checks_ only
  OpenFiles open_files_;
  Limits limits_;
  std::vector<TensorSummary> tensors_;
  PodVector<std::uint32_t> entry_of_tensor_;  // position in state_dict_metadata
  std::vector<ObjectSummary> objects_;
};

}  // namespace cairn
