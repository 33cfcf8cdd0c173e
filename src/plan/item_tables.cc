#include "plan/item_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"

namespace cairn {
namespace {

std::uint64_t hash_of_dims(std::span<const std::int64_t> dims) {
  std::uint64_t hash = kHashSeed.start + dims.size();
  for (const std::int64_t dim : dims) hash = mix_hash(hash, static_cast<std::uint64_t>(dim));
  return hash;
}

// The number `id` stands for in the other table: looked up the first time, remembered after.
template <class Intern>
std::uint32_t translated(PodVector<std::uint32_t>& known, std::uint32_t id, std::uint32_t count,
                         Intern intern) {
  if (known.size() < count) known.resize(count, kNoEntry);
  if (known[id] == kNoEntry) known[id] = intern();
  return known[id];
}

std::int64_t product(std::span<const std::int64_t> dims, std::int64_t factor) {
  std::int64_t bytes = factor;
  for (const std::int64_t dim : dims) {
    if (dim < 0) throw Error(ErrorCode::kInvalidArgument, "a size is negative");
    if (dim == 0) return 0;
  }
  for (const std::int64_t dim : dims) bytes = checked_mul(bytes, dim);
  return bytes;
}

std::int64_t bytes_of(std::uint32_t dims, const ItemRow& row, const ItemTables& tables) try {
  return product(tables.dims[dims], static_cast<std::int64_t>(item_size(tables.spec(row.tensor).dtype)));
} catch (Error& e) {
  e.of_tensor(tables.names[row.name]);
  throw;
}

// The size of an object, where a rank has given one.
std::int64_t object_bytes(const ItemRow& row, const ItemTables& tables) {
  const std::int64_t bytes = row.chunk_sizes == kNoEntry ? 0 : tables.dims[row.chunk_sizes][0];
  if (bytes < 0) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("an object of {} bytes", bytes))
        .of_tensor(tables.names[row.name]);
  }
  return bytes;
}

}  // namespace

std::size_t DimsTable::probe(std::span<const std::int64_t> dims) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash_of_dims(dims) & mask;
  while (slots_[at] != kNoEntry && !std::ranges::equal((*this)[slots_[at]], dims)) at = (at + 1) & mask;
  return at;
}

void DimsTable::grow() {
  const std::size_t slots = slots_.empty() ? 64 : 2 * slots_.size();
  slots_.clear();
  slots_.resize(slots, kNoEntry);
  for (std::uint32_t id = 0; id < size(); ++id) slots_[probe((*this)[id])] = id;
}

std::uint32_t DimsTable::intern(std::span<const std::int64_t> dims) {
  if (ends_.size() >= slots_.size() / 2) grow();
  const std::size_t at = probe(dims);
  if (slots_[at] == kNoEntry) {
    slots_[at] = size();
    values_.append(dims);
    ends_.push_back(values_.size());
  }
  return slots_[at];
}

std::uint64_t TensorSpec::packed() const {
  return (std::uint64_t{size} << 32) | (std::uint64_t{extra} << 16) |
         (static_cast<std::uint64_t>(dtype) << 8) | (static_cast<std::uint64_t>(layout) << 4) |
         (static_cast<std::uint64_t>(memory_format) << 2) | (std::uint64_t{requires_grad} << 1) |
         std::uint64_t{pin_memory};
}

TensorSpec TensorSpec::unpacked(std::uint64_t key) {
  TensorSpec spec;
  spec.size = static_cast<std::uint32_t>(key >> 32);
  spec.extra = static_cast<std::uint16_t>(key >> 16);
  spec.dtype = static_cast<DType>((key >> 8) & 0xff);
  spec.layout = static_cast<Layout>((key >> 4) & 0xf);
  spec.memory_format = static_cast<MemoryFormat>((key >> 2) & 3);
  spec.requires_grad = (key & 2) != 0;
  spec.pin_memory = (key & 1) != 0;
  return spec;
}

std::uint32_t ItemTables::intern_spec(const TensorProperties& properties, const Shape& size) {
  TensorSpec spec;
  spec.size = dims.intern(size.dims());
  spec.dtype = properties.dtype;
  spec.layout = properties.layout;
  spec.memory_format = properties.memory_format;
  spec.requires_grad = properties.requires_grad;
  spec.pin_memory = properties.pin_memory;
  if (!properties.extra.empty()) {
    auto known = std::find(extras.begin(), extras.end(), properties.extra);
    if (known == extras.end()) {
      if (extras.size() >= 0xffff) throw Error(ErrorCode::kLimit, "too many kinds of tensor properties");
      known = extras.insert(extras.end(), properties.extra);
    }
    spec.extra = static_cast<std::uint16_t>(known - extras.begin() + 1);
  }
  return specs.intern(spec.packed());
}

TensorProperties ItemTables::properties(const TensorSpec& spec) const {
  TensorProperties properties;
  properties.dtype = spec.dtype;
  properties.layout = spec.layout;
  properties.memory_format = spec.memory_format;
  properties.requires_grad = spec.requires_grad;
  properties.pin_memory = spec.pin_memory;
  if (spec.extra != 0) properties.extra = extras[spec.extra - 1];
  return properties;
}

ItemTables& WriteItems::Rows::own_tables() {
  if (tables == nullptr) {
    tables = std::make_shared<ItemTables>();
  } else if (tables.use_count() > 1) {
    tables = std::make_shared<ItemTables>(*tables);
  }
  return const_cast<ItemTables&>(*tables);  // every ItemTables is made non-const, here or by join_tables
}

std::int64_t chunk_bytes(const ItemRow& row, const ItemTables& tables) {
  return row.tensor != kNoEntry ? bytes_of(row.chunk_sizes, row, tables) : object_bytes(row, tables);
}

std::int64_t global_bytes(const ItemRow& row, const ItemTables& tables) {
  return row.tensor != kNoEntry ? bytes_of(tables.spec(row.tensor).size, row, tables)
                                : object_bytes(row, tables);
}

std::uint32_t RowTranslator::name(std::uint32_t id) {
  return translated(names_, id, from_->names.size(), [&] { return to_->names.intern(from_->names[id]); });
}

std::uint32_t RowTranslator::dims(std::uint32_t id) {
  if (id == kNoEntry) return kNoEntry;
  return translated(dims_, id, from_->dims.size(), [&] { return to_->dims.intern(from_->dims[id]); });
}

std::uint32_t RowTranslator::tensor(std::uint32_t id) {
  if (id == kNoEntry) return kNoEntry;
  return translated(specs_, id, from_->specs.size(), [&] {
    const TensorSpec spec = from_->spec(id);
    return to_->intern_spec(from_->properties(spec), from_->dims.shape(spec.size));
  });
}

ItemRow RowTranslator::operator()(ItemRow row) {
  row.name = name(row.name);
  row.offset = dims(row.offset);
  row.tensor = tensor(row.tensor);
  row.chunk_offsets = dims(row.chunk_offsets);
  row.chunk_sizes = dims(row.chunk_sizes);
  return row;
}

std::shared_ptr<ItemTables> join_tables(std::vector<SavePlan>& all) {
  const ItemTables* first = nullptr;
  bool shared = true;
  for (const SavePlan& plan : all) {
    const ItemTables* tables = plan.items.rows().tables.get();
    if (tables == nullptr) continue;
    if (first == nullptr) first = tables;
    shared = shared && tables == first;
  }
  std::shared_ptr<ItemTables> joint;
  if (shared && first != nullptr) {
    // Nobody outside may see the tables grow. Growing appends, so who has the old rows is not harmed,
    // but a reader in another thread would be.
    std::shared_ptr<const ItemTables> same;
    std::ptrdiff_t users = 0;
    for (SavePlan& plan : all) {
      if (plan.items.rows().tables == nullptr) continue;
      same = plan.items.rows().tables;
      ++users;
    }
    if (same.use_count() == users + 1) return std::const_pointer_cast<ItemTables>(same);
    joint = std::make_shared<ItemTables>(*first);
    for (SavePlan& plan : all) plan.items.rows().tables = joint;
    return joint;
  }
  joint = std::make_shared<ItemTables>();
  for (SavePlan& plan : all) {
    WriteItems::Rows& rows = plan.items.rows();
    if (rows.tables != nullptr) {
      RowTranslator translate(*rows.tables, *joint);
      for (ItemRow& row : rows.rows) row = translate(row);
    }
    rows.tables = joint;
  }
  return joint;
}

}  // namespace cairn
