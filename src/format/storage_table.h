// The rows behind StorageData: one fixed-size record per stored item.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/name_table.h"
#include "base/pod_vector.h"
#include "cairn/metadata.h"

namespace cairn {

// Lists of dimensions, each stored once: rank, then the dimensions. Recently added ones are found again.
class DimsPool {
 public:
  std::uint32_t add(const std::int64_t* dims, std::uint32_t rank);
  std::uint32_t rank(std::uint32_t at) const { return static_cast<std::uint32_t>(pool_[at]); }
  const std::int64_t* dims(std::uint32_t at) const { return pool_.data() + at + 1; }
  Shape shape(std::uint32_t at) const { return Shape({dims(at), rank(at)}); }
  bool equal(std::uint32_t at, const Shape& shape) const;

 private:
  PodVector<std::int64_t> pool_;
  PodVector<std::uint32_t> recent_;  // by hash; where a list like this was last added
};

// The rows, as plain data.
struct StorageRows {
  static constexpr std::uint32_t kNoOffset = ~std::uint32_t{0};  // an object: no offset
  static constexpr std::int32_t kNoHint = -1;

  struct Key {
    std::uint32_t fqn = 0;  // in names
    std::uint32_t dims = kNoOffset;
    std::int32_t hint = kNoHint;
  };
  struct Place {
    std::uint32_t file = 0;        // in files
    std::uint32_t transforms = 0;  // in transform_lists
    std::int64_t offset = 0;
    std::int64_t length = 0;
  };

  NameTable names;
  NameTable file_numbers;
  NameTable transform_numbers;  // of a list's transforms, one behind the other
  DimsPool dims;
  std::vector<std::string> files;
  std::vector<std::vector<std::string>> transform_lists = {{}};  // 0: none
  PodVector<Key> keys;                                           // row i is keys[i], places[i]
  PodVector<Place> places;
  std::map<std::size_t, Dict> key_extra, place_extra;  // unknown attributes, by row

  std::uint32_t file_id(std::string_view name);
  std::uint32_t transforms_id(const std::vector<std::string>& list);
};

struct StorageData::Table : StorageRows {
  Table() = default;
  Table(const Table& other) : StorageRows(other) {}

  // The row of (fqn, offset); null means an object. Error kCorrupt when two rows have the same index.
  std::optional<std::size_t> find(std::string_view fqn, const Shape* offset) const;
  void add(Key key, Place place);
  void adopt(StorageRows rows) { static_cast<StorageRows&>(*this) = std::move(rows); }

 private:
  std::size_t slot_of(std::uint32_t fqn, const Shape* offset) const;
  void index_rows() const;

  // A hash index over the rows, brought up to date when first asked.
  mutable std::mutex mutex_;
  mutable PodVector<std::uint32_t> slots_;
  mutable std::size_t indexed_ = 0;
};

}  // namespace cairn
