// The compact form of write items: what many items share is stored once, an item is a row of numbers.
//
// Rows refer to tables by number. The tables of one rank's plan are small; after the coordinator has
// joined the plans of all ranks, all of them share one set of tables, and equal numbers mean equal things
// across ranks: grouping millions of items never looks at a string or a shape again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/name_table.h"
#include "base/pod_vector.h"
#include "cairn/plan.h"
#include "plan/key_table.h"

namespace cairn {

inline constexpr std::uint32_t kNoEntry = ~std::uint32_t{0};

// Lists of dimensions, each stored once.
class DimsTable {
 public:
  std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size()); }
  std::span<const std::int64_t> operator[](std::uint32_t id) const {
    const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return {values_.data() + begin, ends_[id] - begin};
  }
  Shape shape(std::uint32_t id) const { return Shape((*this)[id]); }
  std::uint32_t intern(std::span<const std::int64_t> dims);

 private:
  std::size_t probe(std::span<const std::int64_t> dims) const;
  void grow();

  PodVector<std::int64_t> values_;
  PodVector<std::uint64_t> ends_;
  PodVector<std::uint32_t> slots_;
};

// A tensor as its items describe it: properties and global size.
struct TensorSpec {
  std::uint32_t size = 0;  // in ItemTables::dims
  DType dtype = DType::kFloat32;
  Layout layout = Layout::kStrided;
  MemoryFormat memory_format = MemoryFormat::kContiguous;
  bool requires_grad = false;
  bool pin_memory = false;
  std::uint16_t extra = 0;  // in ItemTables::extras, from 1; 0 for none

  std::uint64_t packed() const;
  static TensorSpec unpacked(std::uint64_t key);
};

struct ItemTables {
  NameTable names;
  DimsTable dims;
  KeyTable specs;            // TensorSpec::packed()
  std::vector<List> extras;  // TensorProperties::extra: rare, and few

  TensorSpec spec(std::uint32_t id) const { return TensorSpec::unpacked(specs[id]); }
  std::uint32_t intern_spec(const TensorProperties& properties, const Shape& size);
  TensorProperties properties(const TensorSpec& spec) const;
};

// One item. Numbers refer to ItemTables; kNoEntry where the item has no such thing.
struct ItemRow {
  std::uint32_t name = 0;
  std::uint32_t offset = kNoEntry;         // index.offset
  std::uint32_t hint = kNoEntry;           // index.index
  std::uint32_t tensor = kNoEntry;         // a TensorSpec
  std::uint32_t chunk_offsets = kNoEntry;  // dims
  std::uint32_t chunk_sizes = kNoEntry;    // dims; for an object, the one-element list [nbytes]
  std::uint32_t type = 0;                  // WriteItemType

  bool is_tensor() const { return type != static_cast<std::uint32_t>(WriteItemType::kByteIO); }
  bool is_shard() const { return type == static_cast<std::uint32_t>(WriteItemType::kShard); }
  // Items with equal keys are the same piece of state.
  std::uint64_t key() const { return (std::uint64_t{name} << 32) | offset; }
  bool operator==(const ItemRow&) const = default;
};
static_assert(sizeof(ItemRow) == 28);

// What a WriteItems holds. Tables that somebody else shares are copied before they change.
struct WriteItems::Rows {
  std::shared_ptr<const ItemTables> tables;  // null while there are no rows
  PodVector<ItemRow> rows;

  ItemTables& own_tables();
};

// Error(kLimit) for a name that no checkpoint can hold: what is saved can be read back.
void check_name(std::string_view name);

ItemRow row_of(const WriteItem& item, ItemTables& tables);
WriteItem item_of(const ItemRow& row, const ItemTables& tables);

// Bytes of the row's chunk, or of its global tensor; Error(kLimit) when they do not fit in 64 bits and
// Error(kInvalidArgument) for negative sizes. Objects: nbytes where it is known, else 0.
std::int64_t chunk_bytes(const ItemRow& row, const ItemTables& tables);
std::int64_t global_bytes(const ItemRow& row, const ItemTables& tables);

// Makes all plans share one set of tables and returns it, for the caller alone to change. `all` must not
// be copied elsewhere meanwhile.
std::shared_ptr<ItemTables> join_tables(std::vector<SavePlan>& all);

// Translates rows from one set of tables to another, each number once.
class RowTranslator {
 public:
  RowTranslator(const ItemTables& from, ItemTables& to) : from_(&from), to_(&to) {}
  // Names that the caller has translated already, by number.
  void set_names(std::span<const std::uint32_t> names) { names_.append(names); }

  ItemRow operator()(ItemRow row);

 private:
  std::uint32_t name(std::uint32_t id);
  std::uint32_t dims(std::uint32_t id);
  std::uint32_t tensor(std::uint32_t id);

  const ItemTables* from_;
  ItemTables* to_;
  PodVector<std::uint32_t> names_;
  PodVector<std::uint32_t> dims_;
  PodVector<std::uint32_t> specs_;
};

}  // namespace cairn
