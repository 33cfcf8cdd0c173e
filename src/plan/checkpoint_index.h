// The entries of a checkpoint by name, and the chunks of each by place: built once, asked often.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/name_table.h"
#include "cairn/metadata.h"
#include "cairn/plan.h"
#include "plan/chunk_index.h"

namespace cairn {

// The metadata is borrowed and must not change. One thread at a time: the index of a tensor's chunks is
// made when it is first needed.
class CheckpointIndex {
 public:
  explicit CheckpointIndex(const Metadata& metadata);

  const Metadata& metadata() const { return metadata_; }
  // Position in state_dict_metadata; nullopt when there is no such entry.
  std::optional<std::size_t> find(std::string_view fqn) const;

  // Appends what create_read_items_for_chunk_list gives for the tensor at `position`.
  void add_read_items(std::size_t position, std::span<const Box> wanted, std::vector<ReadItem>& items);

 private:
  const Metadata& metadata_;
  NameTable names_;
  std::unordered_map<std::size_t, std::unique_ptr<ChunkIndex>> chunks_;
};

// Appends the items of one tensor. `index` is made when it is worth it; pass the same one for the same
// tensor.
void append_read_items(const std::string& fqn, const TensorStorageMetadata& stored,
                       std::span<const Box> wanted, std::unique_ptr<ChunkIndex>& index,
                       std::vector<ReadItem>& items);

}  // namespace cairn
