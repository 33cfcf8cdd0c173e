// Write results on the wire: the header of a plan, names (tensors, files, transforms), lists of dimensions,
// lists of transforms, rows, and the extra attributes of those that have some.
#include <fmt/format.h>

#include <utility>

#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "plan/wire_tables.h"
#include "plan/wire_values.h"

namespace cairn {
namespace {

struct ResultRow {
  std::uint32_t name = 0;
  std::uint32_t offset = kNoEntry;
  std::uint32_t hint = kNoEntry;
  std::uint32_t file = 0;
  std::uint32_t transforms = kNoEntry;  // a list of names
  std::uint32_t has_extra = 0;
  std::int64_t size = 0;
  std::int64_t file_offset = 0;
  std::int64_t length = 0;
};
static_assert(sizeof(ResultRow) == 48);

ResultRow row_of(const WriteResult& result, NameTable& names, DimsTable& dims, DimsTable& lists) {
  if (result.index.index && (*result.index.index < 0 || *result.index.index >= std::int64_t{kNoEntry})) {
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

class ResultReader {
 public:
  ResultReader(ByteSpan message, const PlanHeader& header)
      : header_(header),
        reader_(after_header(message)),
        names_(reader_, header.names, header.name_bytes),
        dims_(reader_, header.dims, header.dim_values),
        lists_(reader_, header.specs, header.path_entries),
        rows_(reader_.take(std::uint64_t{header.items} * sizeof(ResultRow))) {
    if (header.flags != 0 || header.path_bytes != 0) reader_.fail("contradicts itself");
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
    to.index.fqn = names_[row.name];
    to.index.offset.reset();
    if (row.offset != kNoEntry) to.index.offset = dims_.shape(row.offset);
    to.index.index.reset();
    if (row.hint != kNoEntry) to.index.index = row.hint;
    if (row.size < 0 || row.file_offset < 0 || row.length < 0 || row.has_extra > 1) {
      reader_.fail("has a result that cannot be");
    }
    to.size_in_bytes = row.size;
    to.storage_data.relative_path = names_[row.file];
    to.storage_data.offset = row.file_offset;
    to.storage_data.length = row.length;
    to.storage_data.transform_descriptors.clear();
    if (row.transforms != kNoEntry) {
      for (std::size_t i = 0; i < lists_.length(row.transforms); ++i) {
        const std::int64_t id = lists_.at(row.transforms, i);
        if (id < 0 || id >= std::int64_t{header_.names}) reader_.fail("refers to something it does not hold");
        to.storage_data.transform_descriptors.emplace_back(names_[static_cast<std::uint32_t>(id)]);
      }
    }
    to.storage_data.extra = Dict();
    if (row.has_extra == 0) return;
    Value extra = read_value(reader_);
    if (!extra.is<Dict>()) reader_.fail("has attributes that are no dict");
    to.storage_data.extra = std::move(extra.get<Dict>());
  }

  PlanHeader header_;
  WireReader reader_;
  NameReader names_;
  ListReader dims_;
  ListReader lists_;
  ByteSpan rows_;
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
  PlanHeader header;
  header.kind = static_cast<std::uint8_t>(PlanMessage::kWriteResults);
  header.rank = static_cast<std::uint32_t>(rank);
  header.world_size = static_cast<std::uint32_t>(world_size);
  header.items = static_cast<std::uint32_t>(results.size());
  header.names = names.size();
  header.dims = dims.size();
  header.specs = lists.size();
  header.attached_bytes = static_cast<std::uint32_t>(extras.size());
  std::string tables;
  put_names(tables, names, header.name_bytes);
  put_lists(tables, dims, header.dim_values);
  put_lists(tables, lists, header.path_entries);
  std::string message;
  put(message, header);
  message += tables;
  message += rows;
  message += extras;
  if (message.size() >= kNoEntry)
    throw Error(ErrorCode::kLimit, "the results of a rank are larger than 4 GiB");
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
