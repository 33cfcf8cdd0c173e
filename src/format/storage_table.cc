#include "format/storage_table.h"

#include <fmt/format.h>

#include <cstring>

#include "base/seeded_hash.h"
#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::size_t kRecent = 8192;
constexpr std::uint32_t kFree = ~std::uint32_t{0};

std::uint64_t hash_dims(const std::int64_t* dims, std::uint32_t rank) {
  std::uint64_t hash = kHashSeed.start + rank;
  for (std::uint32_t i = 0; i < rank; ++i) hash = mix_hash(hash, static_cast<std::uint64_t>(dims[i]));
  return hash;
}

}  // namespace

std::uint32_t DimsPool::add(const std::int64_t* dims, std::uint32_t rank) {
  if (recent_.empty()) recent_.resize(kRecent, kFree);
  std::uint32_t& recent = recent_[hash_dims(dims, rank) % kRecent];
  if (recent != kFree && this->rank(recent) == rank && std::equal(dims, dims + rank, this->dims(recent)))
    return recent;
  if (pool_.size() >= kFree - rank - 1)
    throw Error(ErrorCode::kLimit, "more than 2^32 dimensions in one checkpoint");
  recent = static_cast<std::uint32_t>(pool_.size());
  std::int64_t* at = pool_.extend(rank + 1);
  at[0] = rank;
  std::copy(dims, dims + rank, at + 1);
  return recent;
}

bool DimsPool::equal(std::uint32_t at, const Shape& shape) const {
  return rank(at) == shape.rank() && std::equal(shape.begin(), shape.end(), dims(at));
}

std::uint32_t StorageRows::file_id(std::string_view name) {
  const std::uint32_t id = file_numbers.intern(name);
  if (id == files.size()) files.emplace_back(name);
  return id;
}

std::uint32_t StorageRows::transforms_id(const std::vector<std::string>& list) {
  if (list.empty()) return 0;
  std::string all;  // no two lists have the same
  for (const std::string& transform : list) all += fmt::format("{}:{}", transform.size(), transform);
  const std::uint32_t id = transform_numbers.intern(all) + 1;
  if (id == transform_lists.size()) transform_lists.push_back(list);
  return id;
}

// The slot that holds the row of this index, or the free one where it would go.
std::size_t StorageData::Table::slot_of(std::uint32_t fqn, const Shape* offset) const {
  const std::uint64_t hash = mix_hash(
      fqn, offset == nullptr ? 0 : hash_dims(offset->data(), static_cast<std::uint32_t>(offset->rank())) + 1);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at] != kFree) {
    const Key& key = keys[slots_[at]];
    const bool same_offset =
        offset == nullptr ? key.dims == kNoOffset : key.dims != kNoOffset && dims.equal(key.dims, *offset);
    if (key.fqn == fqn && same_offset) break;
    at = (at + 1) & mask;
  }
  return at;
}

void StorageData::Table::index_rows() const {
  const std::lock_guard lock(mutex_);
  if (indexed_ == keys.size()) return;
  std::size_t wanted = 64;
  while (wanted < 2 * keys.size()) wanted *= 2;
  if (wanted > slots_.size()) {
    slots_.clear();
    slots_.resize(wanted, kFree);
    indexed_ = 0;
  }
  for (; indexed_ < keys.size(); ++indexed_) {
    const Key& key = keys[indexed_];
    const Shape offset = key.dims == kNoOffset ? Shape() : dims.shape(key.dims);
    std::uint32_t& slot = slots_[slot_of(key.fqn, key.dims == kNoOffset ? nullptr : &offset)];
    if (slot != kFree) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("storage_data places the chunk at {} twice", to_string(offset)))
          .of_tensor(names[key.fqn]);
    }
    slot = static_cast<std::uint32_t>(indexed_);
  }
}

std::optional<std::size_t> StorageData::Table::find(std::string_view fqn, const Shape* offset) const {
  const std::optional<std::uint32_t> id = names.find(fqn);
  if (!id) return std::nullopt;
  index_rows();
  const std::uint32_t row = slots_.empty() ? kFree : slots_[slot_of(*id, offset)];
  if (row == kFree) return std::nullopt;
  return row;
}

void StorageData::Table::add(Key key, Place place) {
  keys.push_back(key);
  places.push_back(place);
}

StorageData::StorageData() : table_(std::make_unique<Table>()) {}
StorageData::StorageData(const StorageData& other) : table_(std::make_unique<Table>(*other.table_)) {}
StorageData::StorageData(StorageData&& other) noexcept = default;
StorageData& StorageData::operator=(const StorageData& other) {
  if (this != &other) table_ = std::make_unique<Table>(*other.table_);
  return *this;
}
StorageData& StorageData::operator=(StorageData&& other) noexcept = default;
StorageData::~StorageData() = default;

std::size_t StorageData::size() const { return table_->keys.size(); }

void StorageData::add(const MetadataIndex& index, const StorageInfo& place) {
  const std::optional<std::size_t> old = find(index.fqn, index.offset ? &*index.offset : nullptr);
  const std::size_t row = old ? *old : size();
  Table::Key key;
  key.fqn = table_->names.intern(index.fqn);
  if (index.offset)
    key.dims = table_->dims.add(index.offset->data(), static_cast<std::uint32_t>(index.offset->rank()));
  if (index.index && *index.index >= 0 && *index.index <= INT32_MAX)
    key.hint = static_cast<std::int32_t>(*index.index);
  const Table::Place where{table_->file_id(place.relative_path),
                           table_->transforms_id(place.transform_descriptors), place.offset, place.length};
  if (old) {
    table_->keys[row] = key;
    table_->places[row] = where;
  } else {
    table_->add(key, where);
  }
  table_->place_extra.erase(row);
  if (!place.extra.empty()) table_->place_extra[row] = place.extra;
}

MetadataIndex StorageData::index(std::size_t i) const {
  const Table::Key& key = table_->keys[i];
  MetadataIndex out;
  out.fqn = table_->names[key.fqn];
  if (key.dims != Table::kNoOffset) out.offset = table_->dims.shape(key.dims);
  if (key.hint != Table::kNoHint) out.index = key.hint;
  return out;
}

StorageInfo StorageData::info(std::size_t i) const {
  const Table::Place& place = table_->places[i];
  StorageInfo out{
      table_->files[place.file], place.offset, place.length, table_->transform_lists[place.transforms], {}};
  const auto extra = table_->place_extra.find(i);
  if (extra != table_->place_extra.end()) out.extra = extra->second;
  return out;
}

std::optional<std::size_t> StorageData::find(std::string_view fqn, const Shape* offset) const {
  return table_->find(fqn, offset);
}

std::string_view StorageData::fqn(std::size_t i) const { return table_->names[table_->keys[i].fqn]; }
std::uint32_t StorageData::fqn_id(std::size_t i) const { return table_->keys[i].fqn; }
std::uint32_t StorageData::file_id(std::size_t i) const { return table_->places[i].file; }
std::int64_t StorageData::offset(std::size_t i) const { return table_->places[i].offset; }
std::int64_t StorageData::length(std::size_t i) const { return table_->places[i].length; }
const std::vector<std::string>& StorageData::files() const { return table_->files; }
const std::vector<std::string>& StorageData::transforms(std::size_t i) const {
  return table_->transform_lists[table_->places[i].transforms];
}

bool StorageData::operator==(const StorageData& other) const {
  if (size() != other.size()) return false;
  for (std::size_t i = 0; i < size(); ++i) {
    if (index(i) != other.index(i) || index(i).index != other.index(i).index || info(i) != other.info(i))
      return false;
  }
  return true;
}

}  // namespace cairn
