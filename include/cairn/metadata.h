// What a checkpoint holds and where each byte of it lies: the contents of a `.metadata` file.
//
// The names are torch.distributed.checkpoint's. Plain values, but kept compact where there can be
// millions of them: a chunk costs about 150 bytes all told.
//
//   const Metadata& metadata = *Checkpoint::open("run/step-1000")->metadata();
//   for (const auto& [name, stored] : metadata.state_dict_metadata)
//     if (auto* tensor = std::get_if<TensorStorageMetadata>(&stored)) use(name, tensor->size,
//     tensor->chunks);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

enum class MemoryFormat : std::uint8_t { kContiguous = 0, kChannelsLast = 1, kPreserve = 2 };

enum class Layout : std::uint8_t {
  kStrided,
  kSparseCoo,
  kSparseCsr,
  kSparseCsc,
  kSparseBsr,
  kSparseBsc,
  kMkldnn,
  kJagged
};
std::string_view name_of(Layout layout);  // "torch.strided", ...

// How a tensor looked when it was saved. Only dtype still matters to anybody.
struct TensorProperties {
  DType dtype = DType::kFloat32;
  Layout layout = Layout::kStrided;
  bool requires_grad = false;
  MemoryFormat memory_format = MemoryFormat::kContiguous;
  bool pin_memory = false;
  List extra;  // what a later torch appended to the state tuple
  bool operator==(const TensorProperties&) const = default;
};

// A stored piece of a tensor: Box::offsets and Box::sizes are DCP's ChunkStorageMetadata fields.
using ChunkStorageMetadata = Box;

struct TensorStorageMetadata {
  TensorProperties properties;
  Shape size;  // of the whole tensor
  std::vector<ChunkStorageMetadata> chunks;
  Dict extra;                                             // attributes we do not know, kept for a rewrite
  std::vector<std::pair<std::size_t, Dict>> chunk_extra;  // the same for single chunks, by position
  bool operator==(const TensorStorageMetadata&) const = default;
};

struct BytesStorageMetadata {
  Dict extra;
  bool operator==(const BytesStorageMetadata&) const = default;
};

using StorageMetadata = std::variant<TensorStorageMetadata, BytesStorageMetadata>;

// Names one stored item: a tensor's chunk by its offset, an object by its name alone. `index` is a
// hint (the chunk's position) and takes no part in equality or hash.
struct MetadataIndex {
  std::string fqn;
  std::optional<Shape> offset;
  std::optional<std::int64_t> index;
  bool operator==(const MetadataIndex& other) const { return fqn == other.fqn && offset == other.offset; }
};
std::size_t hash_of(const MetadataIndex& index);

// Where one item's bytes are: `length` bytes from `offset` of a file beside the .metadata.
struct StorageInfo {
  std::string relative_path;
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::vector<std::string> transform_descriptors;  // in the order to undo them
  Dict extra;
  bool operator==(const StorageInfo&) const = default;
};

// An ordered map MetadataIndex -> StorageInfo for millions of entries. File names, tensor names and
// transform lists are stored once; an entry is 40 bytes and its offsets.
class StorageData {
 public:
  StorageData();
  StorageData(const StorageData&);
  StorageData(StorageData&&) noexcept;
  StorageData& operator=(const StorageData&);
  StorageData& operator=(StorageData&&) noexcept;
  ~StorageData();

  std::size_t size() const;
  bool empty() const { return size() == 0; }

  void add(const MetadataIndex& index, const StorageInfo& info);  // replaces an equal index
  MetadataIndex index(std::size_t i) const;
  StorageInfo info(std::size_t i) const;
  // Position of the entry for (fqn, offset); `offset` null means an object. nullopt when absent.
  std::optional<std::size_t> find(std::string_view fqn, const Shape* offset) const;

  // The same without making strings: views live as long as this object is not changed.
  std::string_view fqn(std::size_t i) const;
  std::uint32_t fqn_id(std::size_t i) const;  // equal names have equal ids, dense from 0
  std::uint32_t file_id(std::size_t i) const;
  std::int64_t offset(std::size_t i) const;
  std::int64_t length(std::size_t i) const;
  const std::vector<std::string>& files() const;  // by file_id, in order of first use
  const std::vector<std::string>& transforms(std::size_t i) const;

  bool operator==(const StorageData& other) const;

  struct Table;  // src/format/storage_table.h, for the reader and the writer
  Table& table() { return *table_; }
  const Table& table() const { return *table_; }

 private:
  std::unique_ptr<Table> table_;
};

// 128 random bits, one per attempt to save: in the metadata, in the manifest, and in the files' names.
using SaveId = std::array<std::byte, 16>;
std::string to_string(const SaveId& id);  // 32 hexadecimal digits

struct StorageMeta {
  std::optional<std::string> checkpoint_id;
  std::optional<std::string> save_id;
  std::optional<std::string> load_id;
  List modules;
  bool has_modules = false;  // the field is there at all (torch 2.7 or later)
  Dict extra;
  bool operator==(const StorageMeta&) const = default;
};

// The path of each entry in the nested state, in order: DCP's planner_data. Copies share what they hold
// until one of them changes.
class PathMap {
 public:
  PathMap();
  PathMap(const PathMap&);
  PathMap(PathMap&&) noexcept;
  PathMap& operator=(const PathMap&);
  PathMap& operator=(PathMap&&) noexcept;
  ~PathMap();

  std::size_t size() const;
  void add(std::string_view fqn, const Path& path);
  std::string_view fqn(std::size_t i) const;
  Path path(std::size_t i) const;
  std::optional<Path> find(std::string_view fqn) const;  // linear
  bool operator==(const PathMap& other) const;

  // One entry at a time, without a Path: begin_entry, then each step, then the next entry.
  void begin_entry(std::string_view fqn);
  void add_step(std::string_view name);
  void add_step(std::int64_t number);

  // The steps of entry i, without a Path: start with cursor 0, go on until there is none.
  struct Step {
    std::string_view name;  // when it is no number; valid until the map changes
    std::int64_t number = 0;
    bool is_number = false;
  };
  std::optional<Step> step(std::size_t i, std::uint64_t& cursor) const;
  bool shares_with(const PathMap& other) const { return data_ == other.data_; }  // equal without a look

 private:
  struct Data;
  Data& own();
  std::shared_ptr<Data> data_;
};

// The contents of one `.metadata` file.
struct Metadata {
  // Insertion order, as in the file; names are unique.
  std::vector<std::pair<std::string, StorageMetadata>> state_dict_metadata;
  // Absent, DCP's own paths, or whatever a foreign planner left there.
  std::variant<None, PathMap, Value> planner_data;
  StorageData storage_data;
  Value foreign_storage_data;  // set instead of storage_data when it is no map of _StorageInfo
  std::optional<StorageMeta> storage_meta;
  std::optional<std::string> version;
  Dict extra;
  // Which module path the classes came from, for `cairn info`: "torch.distributed.checkpoint", or the
  // older "torch.distributed._shard.checkpoint".
  std::string written_as;

  const StorageMetadata* find(std::string_view fqn) const;  // linear; nullptr when absent
  bool operator==(const Metadata&) const = default;
};

}  // namespace cairn

template <> struct std::hash<cairn::MetadataIndex> {
  std::size_t operator()(const cairn::MetadataIndex& index) const { return cairn::hash_of(index); }
};
