#include <fmt/format.h>

#include <utility>

#include "base/checked.h"
#include "cairn/error.h"
#include "cairn/limits.h"
#include "cairn/plan.h"
#include "plan/item_tables.h"

namespace cairn {
namespace {

bool same_index(const MetadataIndex& a, const MetadataIndex& b) { return a == b && a.index == b.index; }

[[noreturn]] void refuse(const WriteItem& item, const char* why) {
  throw Error(ErrorCode::kInvalidArgument, why)
      .of_tensor(item.index.fqn)
      .while_doing("adding an item to a plan");
}

void check_possible(const WriteItem& item) {
  check_name(item.index.fqn);
  switch (item.type) {
    case WriteItemType::kTensor:
    case WriteItemType::kShard:
      if (!item.tensor_data) refuse(item, "a tensor item has no tensor data");
      if (item.bytes_io_data) refuse(item, "a tensor item has the data of an object");
      break;
    case WriteItemType::kByteIO:
      if (item.tensor_data) refuse(item, "an object has tensor data");
      break;
    default: refuse(item, "an item is neither tensor, shard nor object");
  }
  if (item.index.index && (*item.index.index < 0 || *item.index.index >= std::int64_t{kNoEntry})) {
    refuse(item, "an item's position is no 32-bit number");
  }
}

std::int64_t bytes_of(const TensorWriteData& data, const Shape& shape) {
  return checked_mul(shape.numel(), static_cast<std::int64_t>(item_size(data.properties.dtype)));
}

// Rows of different tables, compared by what they mean.
bool same_meaning(const ItemRow& a, const ItemTables& ta, const ItemRow& b, const ItemTables& tb) {
  const auto same_dims = [&](std::uint32_t x, std::uint32_t y) {
    if (x == kNoEntry || y == kNoEntry) return x == y;
    return std::ranges::equal(ta.dims[x], tb.dims[y]);
  };
  if (a.type != b.type || a.hint != b.hint || (a.tensor == kNoEntry) != (b.tensor == kNoEntry)) return false;
  if (ta.names[a.name] != tb.names[b.name]) return false;
  if (!same_dims(a.offset, b.offset) || !same_dims(a.chunk_offsets, b.chunk_offsets) ||
      !same_dims(a.chunk_sizes, b.chunk_sizes)) {
    return false;
  }
  if (a.tensor == kNoEntry) return true;
  const TensorSpec x = ta.spec(a.tensor);
  const TensorSpec y = tb.spec(b.tensor);
  return same_dims(x.size, y.size) && ta.properties(x) == tb.properties(y);
}

}  // namespace

WriteItem WriteItem::tensor(std::string fqn, DType dtype, Shape size) {
  Box whole = Box::whole(size);
  WriteItem item = shard(std::move(fqn), dtype, std::move(size), std::move(whole));
  item.type = WriteItemType::kTensor;
  return item;
}

WriteItem WriteItem::shard(std::string fqn, DType dtype, Shape size, Box chunk) {
  WriteItem item;
  item.type = WriteItemType::kShard;
  item.index = {std::move(fqn), chunk.offsets, std::nullopt};
  TensorProperties properties;
  properties.dtype = dtype;
  item.tensor_data = TensorWriteData{std::move(chunk), std::move(properties), std::move(size)};
  return item;
}

WriteItem WriteItem::bytes(std::string fqn) {
  WriteItem item;
  item.index.fqn = std::move(fqn);
  return item;
}

std::optional<std::int64_t> WriteItem::tensor_storage_size() const {
  if (!tensor_data) return std::nullopt;
  return bytes_of(*tensor_data, tensor_data->size);
}

std::optional<std::int64_t> WriteItem::chunk_storage_size() const {
  if (!tensor_data) return std::nullopt;
  return bytes_of(*tensor_data, tensor_data->chunk.sizes);
}

bool WriteItem::operator==(const WriteItem& other) const {
  return same_index(index, other.index) && type == other.type && bytes_io_data == other.bytes_io_data &&
         tensor_data == other.tensor_data;
}

void check_name(std::string_view name) {
  constexpr std::size_t kShown = 100;
  const std::uint64_t most = Limits().name_bytes;
  if (name.size() <= most) return;
  throw Error(ErrorCode::kLimit,
              fmt::format("the name has {} bytes; a checkpoint holds names of {} at most", name.size(), most))
      .of_tensor(std::string(name.substr(0, kShown)) + "...");
}

ItemRow row_of(const WriteItem& item, ItemTables& tables) {
  check_possible(item);
  ItemRow row;
  row.name = tables.names.intern(item.index.fqn);
  row.type = static_cast<std::uint32_t>(item.type);
  if (item.index.offset) row.offset = tables.dims.intern(item.index.offset->dims());
  if (item.index.index) row.hint = static_cast<std::uint32_t>(*item.index.index);
  if (item.bytes_io_data) row.chunk_sizes = tables.dims.intern({&item.bytes_io_data->nbytes, 1});
  if (item.tensor_data) {
    row.tensor = tables.intern_spec(item.tensor_data->properties, item.tensor_data->size);
    row.chunk_offsets = tables.dims.intern(item.tensor_data->chunk.offsets.dims());
    row.chunk_sizes = tables.dims.intern(item.tensor_data->chunk.sizes.dims());
  }
  return row;
}

WriteItem item_of(const ItemRow& row, const ItemTables& tables) {
  WriteItem item;
  item.index.fqn = std::string(tables.names[row.name]);
  item.type = static_cast<WriteItemType>(row.type);
  if (row.offset != kNoEntry) item.index.offset = tables.dims.shape(row.offset);
  if (row.hint != kNoEntry) item.index.index = row.hint;
  if (row.tensor != kNoEntry) {
    const TensorSpec spec = tables.spec(row.tensor);
    item.tensor_data =
        TensorWriteData{{tables.dims.shape(row.chunk_offsets), tables.dims.shape(row.chunk_sizes)},
                        tables.properties(spec),
                        tables.dims.shape(spec.size)};
  } else if (row.chunk_sizes != kNoEntry) {
    item.bytes_io_data = BytesIOWriteData{tables.dims[row.chunk_sizes][0]};
  }
  return item;
}

WriteItems::WriteItems() : rows_(std::make_unique<Rows>()) {}
WriteItems::WriteItems(std::initializer_list<WriteItem> items) : WriteItems() {
  for (const WriteItem& item : items) push_back(item);
}
WriteItems::WriteItems(const std::vector<WriteItem>& items) : WriteItems() {
  for (const WriteItem& item : items) push_back(item);
}
WriteItems::WriteItems(const WriteItems& other) : rows_(std::make_unique<Rows>(*other.rows_)) {}
WriteItems::WriteItems(WriteItems&&) noexcept = default;
WriteItems& WriteItems::operator=(const WriteItems& other) {
  if (this != &other) rows_ = std::make_unique<Rows>(*other.rows_);
  return *this;
}
WriteItems& WriteItems::operator=(WriteItems&&) noexcept = default;
WriteItems::~WriteItems() = default;

std::size_t WriteItems::size() const { return rows_->rows.size(); }
WriteItem WriteItems::operator[](std::size_t i) const { return item_of(rows_->rows[i], *rows_->tables); }
void WriteItems::push_back(const WriteItem& item) {
  rows_->rows.push_back(row_of(item, rows_->own_tables()));
}
void WriteItems::set(std::size_t i, const WriteItem& item) {
  rows_->rows[i] = row_of(item, rows_->own_tables());
}
std::string_view WriteItems::fqn(std::size_t i) const { return rows_->tables->names[rows_->rows[i].name]; }
WriteItemType WriteItems::type(std::size_t i) const {
  return static_cast<WriteItemType>(rows_->rows[i].type);
}
WriteItems::Iterator WriteItems::begin() const { return {*this, 0}; }
WriteItems::Iterator WriteItems::end() const { return {*this, size()}; }

std::vector<WriteItem> WriteItems::to_vector() const {
  std::vector<WriteItem> items;
  items.reserve(size());
  for (std::size_t i = 0; i < size(); ++i) items.push_back((*this)[i]);
  return items;
}

bool WriteItems::operator==(const WriteItems& other) const {
  if (size() != other.size()) return false;
  const bool same_tables = rows_->tables == other.rows_->tables;
  for (std::size_t i = 0; i < size(); ++i) {
    const ItemRow& a = rows_->rows[i];
    const ItemRow& b = other.rows_->rows[i];
    if (same_tables ? !(a == b) : !same_meaning(a, *rows_->tables, b, *other.rows_->tables)) return false;
  }
  return true;
}

SavePlan SavePlan::unchanged() {
  SavePlan plan;
  plan.usable = false;
  return plan;
}

bool ReadItem::operator==(const ReadItem& other) const {
  return type == other.type && same_index(dest_index, other.dest_index) &&
         dest_offsets == other.dest_offsets && same_index(storage_index, other.storage_index) &&
         storage_offsets == other.storage_offsets && lengths == other.lengths;
}

}  // namespace cairn
