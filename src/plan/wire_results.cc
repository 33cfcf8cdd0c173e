// Write results on the wire: the header of a plan, names (tensors, files, transforms), lists of dimensions,
// lists of transforms, rows, and the extra attributes of those that have some.
#include <fmt/format.h>

#include <utility>

#include "cairn/error.h"
#include "plan/wire.h"
#include "plan/wire_bytes.h"
#include "plan/wire_header.h"

namespace cairn {
namespace {

struct ResultRow {
  std::uint32_t name = 0;
  std::uint32_t offset = kNone;
  std::uint32_t hint = kNone;
  std::uint32_t file = 0;
  std::uint32_t transforms = kNone;  // a list of names
  std::uint32_t has_extra = 0;
  std::int64_t size = 0;
  std::int64_t file_offset = 0;
  std::int64_t length = 0;
};
static_assert(sizeof(ResultRow) == 48);

ResultRow row_of(const WriteResult& result, NameTable& names, DimsTable& dims, DimsTable& lists) {
  if (result.index.index && (*result.index.index < 0 || *result.index.index >= std::int64_t{kNone})) {
    throw Error(ErrorCode::kInvalidArgument, "a result's position is no 32-bit number")
        .of_tensor(result.index.fqn);
  }
  ResultRow row;
  row.name = names.intern(result.index.fqn);
  if (result.index.offset) row.offset = dims.intern(result.index.offset->dims());
  if (result.index.index) row.hint = static_cast<std::uint32_t>(*result.index.index);
  row.file = names.intern(result.storage_data.relative_path);
  if (!result.storage_data.transform_descriptors.empty()) {
    std::vector<std::int64_t> ids;
    for (const std::string& text : result.storage_data.transform_descriptors)
      ids.push_back(names.intern(text));
    row.transforms = lists.intern(ids);
  }
  row.has_extra = result.storage_data.extra.empty() ? 0 : 1;
  row.size = result.size_in_bytes;
  row.file_offset = result.storage_data.offset;
  row.length = result.storage_data.length;
  return row;
}

// A table as ranks and values; lists of up to 255.
void put_dims(std::string& out, const DimsTable& table, std::uint32_t& values) {
  for (std::uint32_t id = 0; id < table.size(); ++id) {
    if (table[id].size() > kMostWireRank) throw Error(ErrorCode::kLimit, "a list in a result is too long");
    out.push_back(static_cast<char>(table[id].size()));
  }
  for (std::uint32_t id = 0; id < table.size(); ++id) {
    out.append(reinterpret_cast<const char*>(table[id].data()), table[id].size_bytes());
    values += static_cast<std::uint32_t>(table[id].size());
  }
}

// The lists of a table, in one block, found by number.
class ListReader {
 public:
  ListReader(WireReader& reader, std::uint32_t count, std::uint64_t values) {
    const ByteSpan ranks = reader.take(count);
    values_ = reader.take(values * 8);
    std::uint64_t end = 0;
    ends_.reserve(count);
    for (const std::byte rank : ranks) ends_.push_back(end += static_cast<std::uint8_t>(rank));
    if (end != values) reader.fail("has lists that do not add up");
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size()); }
  std::size_t length(std::uint32_t id) const { return ends_[id] - begin(id); }
  std::int64_t at(std::uint32_t id, std::size_t i) const {
    return load<std::int64_t>(values_.data() + 8 * (begin(id) + i));
  }
  Shape shape(std::uint32_t id) const {
    Shape shape(length(id), 0);
    for (std::size_t i = 0; i < shape.rank(); ++i) shape[i] = at(id, i);
    return shape;
  }

 private:
  std::uint64_t begin(std::uint32_t id) const { return id == 0 ? 0 : ends_[id - 1]; }
  ByteSpan values_;
  PodVector<std::uint64_t> ends_;
};

class ResultReader {
 public:
  ResultReader(ByteSpan message, const PlanHeader& header)
      : header_(header),
        reader_(after_header(message)),
        names_(reader_.take(std::uint64_t{header.names} * 4)),
        text_(reader_.text(header.name_bytes)),
        dims_(reader_, header.dims, header.dim_values),
        lists_(reader_, header.specs, header.path_entries),
        rows_(reader_.take(std::uint64_t{header.items} * sizeof(ResultRow))) {
    std::uint64_t end = 0;
    ends_.reserve(header.names);
    for (std::uint32_t i = 0; i < header.names; ++i) {
      end += load<std::uint32_t>(names_.data() + 4 * i);
      if (end > text_.size()) reader_.fail("has names longer than their text");
      ends_.push_back(end);
    }
    if (end != text_.size() || header.flags != 0 || header.path_bytes != 0)
      reader_.fail("contradicts itself");
  }

  void run(const std::function<void(const WriteResult&)>& each) {
    WriteResult result;
    for (std::uint32_t i = 0; i < header_.items; ++i) {
      read(load<ResultRow>(rows_.data() + std::size_t{i} * sizeof(ResultRow)), result);
      each(result);
    }
    reader_.finish();
  }

 private:
  static WireReader after_header(ByteSpan message) {
    WireReader reader(message);
    reader.take(sizeof(PlanHeader));
    return reader;
  }

  void read(const ResultRow& row, WriteResult& to) {
    to.index.fqn = name(row.name);
    to.index.offset.reset();
    if (row.offset != kNone) {
      if (row.offset >= dims_.size()) reader_.fail("refers to something it does not hold");
      to.index.offset = dims_.shape(row.offset);
    }
    to.index.index.reset();
    if (row.hint != kNone) to.index.index = row.hint;
    if (row.size < 0 || row.file_offset < 0 || row.length < 0 || row.has_extra > 1) {
      reader_.fail("has a result that cannot be");
    }
    to.size_in_bytes = row.size;
    to.storage_data.relative_path = name(row.file);
    to.storage_data.offset = row.file_offset;
    to.storage_data.length = row.length;
    to.storage_data.transform_descriptors.clear();
    if (row.transforms != kNone) {
      if (row.transforms >= lists_.size()) reader_.fail("refers to something it does not hold");
      for (std::size_t i = 0; i < lists_.length(row.transforms); ++i) {
        const std::int64_t id = lists_.at(row.transforms, i);
        if (id < 0 || id >= std::int64_t{header_.names}) reader_.fail("refers to something it does not hold");
        to.storage_data.transform_descriptors.emplace_back(name(static_cast<std::uint32_t>(id)));
      }
    }
    to.storage_data.extra = Dict();
    if (row.has_extra == 0) return;
    Value extra = reader_.value();
    if (!extra.is<Dict>()) reader_.fail("has attributes that are no dict");
    to.storage_data.extra = std::move(extra.get<Dict>());
  }

  std::string_view name(std::uint32_t id) const {
    if (id >= ends_.size()) reader_.fail("refers to something it does not hold");
    const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return text_.substr(begin, ends_[id] - begin);
  }

  PlanHeader header_;
  WireReader reader_;
  ByteSpan names_;
  std::string_view text_;
  ListReader dims_;
  ListReader lists_;
  ByteSpan rows_;
  PodVector<std::uint64_t> ends_;
};

}  // namespace

std::string encode_write_results(const std::vector<WriteResult>& results, int rank, int world_size) {
  NameTable names;
  DimsTable dims;
  DimsTable lists;
  std::string rows;
  std::string extras;
  for (const WriteResult& result : results) {
    put(rows, row_of(result, names, dims, lists));
    if (!result.storage_data.extra.empty()) put_value(extras, Value(result.storage_data.extra));
  }
  std::string name_lengths;
  std::string name_text;
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    put(name_lengths, static_cast<std::uint32_t>(names[id].size()));
    name_text.append(names[id]);
  }
  PlanHeader header;
  header.kind = static_cast<std::uint8_t>(PlanMessage::kWriteResults);
  header.rank = static_cast<std::uint32_t>(rank);
  header.world_size = static_cast<std::uint32_t>(world_size);
  header.items = static_cast<std::uint32_t>(results.size());
  header.names = names.size();
  header.name_bytes = static_cast<std::uint32_t>(name_text.size());
  header.dims = dims.size();
  header.specs = lists.size();
  header.attached_bytes = static_cast<std::uint32_t>(extras.size());
  std::string dims_bytes;
  put_dims(dims_bytes, dims, header.dim_values);
  std::string lists_bytes;
  put_dims(lists_bytes, lists, header.path_entries);
  std::string message;
  put(message, header);
  message += name_lengths;
  message += name_text;
  message += dims_bytes;
  message += lists_bytes;
  message += rows;
  message += extras;
  if (message.size() >= kNone) throw Error(ErrorCode::kLimit, "the results of a rank are larger than 4 GiB");
  return message;
}

void decode_write_results(ByteSpan message, int rank, int world_size,
                          const std::function<void(const WriteResult&)>& each) {
  const PlanHeader header = read_header(message, PlanMessage::kWriteResults, world_size);
  if (header.rank != static_cast<std::uint32_t>(rank)) {
    throw Error(ErrorCode::kConflict, fmt::format("results of rank {} came from rank {}", header.rank, rank))
        .on_rank(rank);
  }
  ResultReader(message, header).run(each);
}

}  // namespace cairn
