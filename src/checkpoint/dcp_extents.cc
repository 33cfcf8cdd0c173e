// In how many files each entry of a checkpoint lies: one pass over its stored items, no strings made.
#include <algorithm>

#include "checkpoint/dcp_checkpoint.h"
#include "format/storage_table.h"

namespace cairn {
namespace {

// The stored items of each name side by side: those of name id k are files_[starts_[k] .. starts_[k + 1]).
class ItemsByName {
 public:
  explicit ItemsByName(const StorageData& storage) : storage_(storage) {
    const std::size_t items = storage.size();
    const std::uint32_t names = storage.table().names.size();
    starts_.resize(names + 1, 0);
    first_.resize(names, 0);
    for (std::size_t i = 0; i < items; ++i) ++starts_[storage.fqn_id(i) + 1];
    for (std::size_t k = 0; k < names; ++k) starts_[k + 1] += starts_[k];
    PodVector<std::uint32_t> next = starts_;
    files_.resize(items, 0);
    for (std::size_t i = 0; i < items; ++i) {
      const std::uint32_t name = storage.fqn_id(i);
      if (next[name] == starts_[name]) first_[name] = static_cast<std::uint32_t>(i);
      files_[next[name]++] = storage.file_id(i);
    }
    seen_.resize(storage.files().size(), names);
  }

  // Asked at most once for each name.
  StoredExtent extent(std::size_t k) {
    StoredExtent extent;
    for (std::uint32_t at = starts_[k]; at < starts_[k + 1]; ++at) {
      std::uint32_t& seen = seen_[files_[at]];
      if (seen != k) ++extent.files;
      seen = static_cast<std::uint32_t>(k);
    }
    if (starts_[k] != starts_[k + 1]) {
      extent.first_length = static_cast<std::uint64_t>(std::max<std::int64_t>(0, storage_.length(first_[k])));
    }
    return extent;
  }

 private:
  const StorageData& storage_;
  PodVector<std::uint32_t> starts_;
  PodVector<std::uint32_t> first_;  // by name id: its first item
  PodVector<std::uint32_t> files_;
  PodVector<std::uint32_t> seen_;  // by file: the name it was last counted for
};

}  // namespace

PodVector<StoredExtent> stored_extents(const Metadata& metadata) {
  const NameTable& names = metadata.storage_data.table().names;
  ItemsByName items(metadata.storage_data);
  PodVector<StoredExtent> extents;
  extents.reserve(metadata.state_dict_metadata.size());
  std::uint32_t next = 0;
  for (const auto& [name, entry] : metadata.state_dict_metadata) {
    // Entries and stored items are often in the same order: then nothing is hashed.
    const bool in_order = next < names.size() && names[next] == name;
    const std::optional<std::uint32_t> id = in_order ? next : names.find(name);
    extents.push_back(id ? items.extent(*id) : StoredExtent{});
    if (id) next = *id + 1;
  }
  return extents;
}

}  // namespace cairn
