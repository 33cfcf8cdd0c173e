// Items and plans: who writes what, who reads what.
//
// A plan is a list of items. In a save, a WriteItem is one piece of state a rank writes; in a load, a
// ReadItem is one stretch of a stored chunk that goes to one place of the destination. The names and
// fields are torch.distributed.checkpoint's. All types here are values: comparable, and free to be used
// by different threads as long as each uses its own object.
//
//   SavePlan plan;
//   plan.items.push_back(WriteItem::tensor("model.w", DType::kFloat32, {4, 8}));
//   for (const WriteItem item : plan.items) use(item.index.fqn, item.type);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cairn/metadata.h"
#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

enum class WriteItemType : std::uint8_t { kTensor = 1, kShard = 2, kByteIO = 3 };
enum class LoadItemType : std::uint8_t { kTensor = 1, kByteIO = 2 };

// What a tensor item writes: `chunk` out of a tensor whose global size is `size`.
struct TensorWriteData {
  ChunkStorageMetadata chunk;
  TensorProperties properties;
  Shape size;
  bool operator==(const TensorWriteData&) const = default;
};

struct BytesIOWriteData {
  std::int64_t nbytes = 0;
  bool operator==(const BytesIOWriteData&) const = default;
};

// One piece of state that a rank proposes to write.
struct WriteItem {
  MetadataIndex index;
  WriteItemType type = WriteItemType::kByteIO;
  std::optional<BytesIOWriteData> bytes_io_data;  // the size of an object, where somebody knows it
  std::optional<TensorWriteData> tensor_data;

  static WriteItem tensor(std::string fqn, DType dtype, Shape size);            // a whole tensor
  static WriteItem shard(std::string fqn, DType dtype, Shape size, Box chunk);  // a part of one
  static WriteItem bytes(std::string fqn);                                      // an object

  // Bytes of the GLOBAL tensor, as DCP counts them; nullopt for objects. Error(kLimit) past 2^62.
  std::optional<std::int64_t> tensor_storage_size() const;
  // Bytes of the chunk itself: what is really written. nullopt for objects.
  std::optional<std::int64_t> chunk_storage_size() const;

  bool operator==(const WriteItem& other) const;  // the hint in `index` counts here
};

// A list of WriteItems for millions of them: names, shapes and tensor descriptions are stored once, an
// item is a row of seven numbers. Reading an item makes a WriteItem; nothing refers to it afterwards.
// Copies share the tables and cost the rows.
class WriteItems {
 public:
  WriteItems();
  WriteItems(std::initializer_list<WriteItem> items);
  explicit WriteItems(const std::vector<WriteItem>& items);
  WriteItems(const WriteItems&);
  WriteItems(WriteItems&&) noexcept;
  WriteItems& operator=(const WriteItems&);
  WriteItems& operator=(WriteItems&&) noexcept;
  ~WriteItems();

  std::size_t size() const;
  bool empty() const { return size() == 0; }
  WriteItem operator[](std::size_t i) const;
  // Error(kInvalidArgument) for an item that cannot be: tensor data on an object, none on a tensor, a
  // hint outside 0 .. 2^32 - 2.
  void push_back(const WriteItem& item);
  void set(std::size_t i, const WriteItem& item);
  std::vector<WriteItem> to_vector() const;

  std::string_view fqn(std::size_t i) const;  // valid until the list changes
  WriteItemType type(std::size_t i) const;

  bool operator==(const WriteItems& other) const;

  class Iterator;
  Iterator begin() const;
  Iterator end() const;

  struct Rows;  // src/plan/item_rows.h, for the steps of planning
  Rows& rows() { return *rows_; }
  const Rows& rows() const { return *rows_; }

 private:
  std::unique_ptr<Rows> rows_;
};

class WriteItems::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = WriteItem;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = WriteItem;

  Iterator(const WriteItems& items, std::size_t at) : items_(&items), at_(at) {}
  WriteItem operator*() const { return (*items_)[at_]; }
  Iterator& operator++() {
    ++at_;
    return *this;
  }
  void operator++(int) { ++at_; }
  bool operator==(const Iterator& other) const { return at_ == other.at_; }

 private:
  const WriteItems* items_;
  std::size_t at_;
};

// What a planner attaches to a plan: nothing, the paths of the entries, or data of its own.
using PlannerData = std::variant<None, PathMap, Value>;

// What one rank writes.
struct SavePlan {
  WriteItems items;
  Value storage_data;        // the storage writer's, e.g. the prefix of its file names
  PlannerData planner_data;  // the default planner's: PathMap
  bool usable = true;        // false: "as last time", and the rest is empty
  bool operator==(const SavePlan&) const = default;

  static SavePlan unchanged();  // the plan that says "as last time"
};

// The coordinator's answer: a plan per rank, by rank, and what the checkpoint will hold. The metadata is
// shared because a cached one is handed out again and again; who wants to change it copies it.
struct GlobalSavePlan {
  std::vector<SavePlan> plans;
  std::shared_ptr<const Metadata> metadata;
};

// What became of one WriteItem, said by the rank that wrote it.
struct WriteResult {
  MetadataIndex index;
  std::int64_t size_in_bytes = 0;
  StorageInfo storage_data;
  bool operator==(const WriteResult&) const = default;
};

// Part of a stored chunk and where it goes: `lengths` elements from `storage_offsets` of the chunk that
// `storage_index` names, to `dest_offsets` of the destination that `dest_index` names. Offsets count from
// the start of the chunk and of the destination. Objects have (0,) in all three.
struct ReadItem {
  LoadItemType type = LoadItemType::kTensor;
  MetadataIndex dest_index;
  Shape dest_offsets;
  MetadataIndex storage_index;
  Shape storage_offsets;
  Shape lengths;
  bool operator==(const ReadItem& other) const;  // the hints count here
};

// The bytes of one item are wanted by several ranks, or not by the one that can read them: that one reads for
// all.
struct SharedRead {
  std::size_t item = 0;             // position in LoadPlan::items
  int reader = 0;                   // the rank that reads from storage
  std::vector<int> receivers = {};  // on the reader: who else wants them, ascending; empty on the others
  bool for_others = false;          // on the reader: it does not want them itself
  bool operator==(const SharedRead&) const = default;
};

// What one rank reads.
struct LoadPlan {
  std::vector<ReadItem> items;
  std::vector<SharedRead> shared;  // by item; those not named here are read by the rank itself
  Value storage_data;
  PlannerData planner_data;
  bool operator==(const LoadPlan&) const = default;
};

}  // namespace cairn
