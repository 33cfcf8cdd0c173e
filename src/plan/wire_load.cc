#include "plan/wire_load.h"

#include <fmt/format.h>

#include <utility>

#include "base/wire_bytes.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "plan/wire_tables.h"
#include "plan/wire_values.h"

namespace cairn {
namespace {

struct IndexRow {
  std::uint32_t name = 0;
  std::uint32_t offset = kNoEntry;
  std::uint32_t hint = kNoEntry;
};

struct ReadRow {
  std::uint32_t type = 0;
  IndexRow dest;
  IndexRow storage;
  std::uint32_t dest_offsets = 0;
  std::uint32_t storage_offsets = 0;
  std::uint32_t lengths = 0;
};
static_assert(sizeof(ReadRow) == 40);

struct SharedRow {
  std::uint32_t item = 0;
  std::uint32_t reader = 0;
  std::uint32_t receivers = 0;   // how many; their ranks follow all rows
  std::uint32_t for_others = 0;  // 0 or 1
};

class LoadPlanEncoder {
 public:
  std::string encode(const LoadPlan& plan, int rank, int world_size) {
    for (const ReadItem& item : plan.items) put(rows_, row(item));
    for (const SharedRead& shared : plan.shared) add(shared);
    if (std::holds_alternative<PathMap>(plan.planner_data)) {
      throw Error(ErrorCode::kUnsupported, "paths attached to a load plan cannot be sent to other ranks");
    }
    std::string attached;
    put_value(attached, plan.storage_data);
    const auto* value = std::get_if<Value>(&plan.planner_data);
    if (value != nullptr) put_value(attached, *value);

    PlanHeader header;
    header.kind = static_cast<std::uint8_t>(PlanMessage::kLoadPlan);
    header.flags = value == nullptr ? 0 : PlanHeader::kHasValue;
    header.rank = static_cast<std::uint32_t>(rank);
    header.world_size = static_cast<std::uint32_t>(world_size);
    header.items = static_cast<std::uint32_t>(plan.items.size());
    header.names = names_.size();
    header.dims = dims_.size();
    header.specs = static_cast<std::uint32_t>(plan.shared.size());
    header.path_entries = receivers_;
    header.attached_bytes = static_cast<std::uint32_t>(attached.size());
    std::string tables;
    put_names(tables, names_, header.name_bytes);
    put_lists(tables, dims_, header.dim_values);
    std::string message;
    message.reserve(sizeof(header) + tables.size() + rows_.size() + shared_.size() + attached.size());
    put(message, header);
    for (const std::string* section : {&tables, &rows_, &shared_, &ranks_, &attached}) message += *section;
    if (message.size() >= kNoEntry) throw Error(ErrorCode::kLimit, "a rank's load plan is larger than 4 GiB");
    return message;
  }

 private:
  IndexRow row(const MetadataIndex& index) {
    if (index.index && (*index.index < 0 || *index.index >= std::int64_t{kNoEntry})) {
      throw Error(ErrorCode::kInvalidArgument, "an item's position is no 32-bit number").of_tensor(index.fqn);
    }
    IndexRow row;
    row.name = names_.intern(index.fqn);
    if (index.offset) row.offset = dims_.intern(index.offset->dims());
    if (index.index) row.hint = static_cast<std::uint32_t>(*index.index);
    return row;
  }

  ReadRow row(const ReadItem& item) {
    ReadRow made;
    made.type = static_cast<std::uint32_t>(item.type);
    made.dest = row(item.dest_index);
    made.storage = row(item.storage_index);
    made.dest_offsets = dims_.intern(item.dest_offsets.dims());
    made.storage_offsets = dims_.intern(item.storage_offsets.dims());
    made.lengths = dims_.intern(item.lengths.dims());
    return made;
  }

  void add(const SharedRead& shared) {
    put(shared_, SharedRow{static_cast<std::uint32_t>(shared.item), static_cast<std::uint32_t>(shared.reader),
                           static_cast<std::uint32_t>(shared.receivers.size()), shared.for_others ? 1U : 0U});
    for (const int rank : shared.receivers) put(ranks_, static_cast<std::uint32_t>(rank));
    receivers_ += static_cast<std::uint32_t>(shared.receivers.size());
  }

  NameTable names_;
  DimsTable dims_;
  std::string rows_;
  std::string shared_;
  std::string ranks_;
  std::uint32_t receivers_ = 0;
};

class LoadPlanReader {
 public:
  LoadPlanReader(ByteSpan message, const PlanHeader& header)
      : header_(header),
        reader_(after_header(message)),
        names_(reader_, header.names, header.name_bytes),
        dims_(reader_, header.dims, header.dim_values),
        rows_(reader_.take(std::uint64_t{header.items} * sizeof(ReadRow))),
        shared_(reader_.take(std::uint64_t{header.specs} * sizeof(SharedRow))),
        ranks_(reader_.take(std::uint64_t{header.path_entries} * sizeof(std::uint32_t))) {
    if ((header.flags & ~PlanHeader::kHasValue) != 0 || header.path_bytes != 0 ||
        header.attached_bytes != reader_.left()) {
      reader_.fail("contradicts itself");
    }
  }

  LoadPlan read() {
    LoadPlan plan;
    plan.items.reserve(header_.items);
    for (std::uint32_t i = 0; i < header_.items; ++i)
      plan.items.push_back(item(load<ReadRow>(rows_.data() + std::size_t{i} * sizeof(ReadRow))));
    for (std::uint32_t i = 0; i < header_.specs; ++i)
      plan.shared.push_back(shared(load<SharedRow>(shared_.data() + std::size_t{i} * sizeof(SharedRow))));
    if (!ranks_.empty()) reader_.fail("has receivers of nothing");
    plan.storage_data = read_value(reader_);
    if ((header_.flags & PlanHeader::kHasValue) != 0) plan.planner_data = read_value(reader_);
    reader_.finish();
    return plan;
  }

 private:
  static WireReader after_header(ByteSpan message) {
    WireReader reader(message);
    reader.take(sizeof(PlanHeader));
    return reader;
  }

  MetadataIndex index(const IndexRow& row) const {
    MetadataIndex index;
    index.fqn = names_[row.name];
    if (row.offset != kNoEntry) index.offset = dims_.shape(row.offset);
    if (row.hint != kNoEntry) index.index = row.hint;
    return index;
  }

  ReadItem item(const ReadRow& row) const {
    const bool known = row.type == static_cast<std::uint32_t>(LoadItemType::kTensor) ||
                       row.type == static_cast<std::uint32_t>(LoadItemType::kByteIO);
    if (!known) reader_.fail("has an item of no known kind");
    ReadItem item;
    item.type = static_cast<LoadItemType>(row.type);
    item.dest_index = index(row.dest);
    item.storage_index = index(row.storage);
    item.dest_offsets = dims_.shape(row.dest_offsets);
    item.storage_offsets = dims_.shape(row.storage_offsets);
    item.lengths = dims_.shape(row.lengths);
    return item;
  }

  int rank(std::uint32_t said) const {
    if (said >= header_.world_size) reader_.fail("names a rank that is not in the group");
    return static_cast<int>(said);
  }

  SharedRead shared(const SharedRow& row) {
    if (row.item >= header_.items) reader_.fail("shares an item that it does not hold");
    if (row.for_others > 1) reader_.fail("contradicts itself");
    SharedRead shared{row.item, rank(row.reader), {}, row.for_others == 1};
    if (row.receivers > ranks_.size() / sizeof(std::uint32_t)) reader_.fail("lacks receivers");
    for (std::uint32_t i = 0; i < row.receivers; ++i) {
      shared.receivers.push_back(rank(load<std::uint32_t>(ranks_.data())));
      ranks_ = ranks_.subspan(sizeof(std::uint32_t));
    }
    return shared;
  }

  PlanHeader header_;
  WireReader reader_;
  NameReader names_;
  ListReader dims_;
  ByteSpan rows_;
  ByteSpan shared_;
  ByteSpan ranks_;
};

}  // namespace

std::string encode_load_plan(const LoadPlan& plan, int rank, int world_size) {
  return LoadPlanEncoder().encode(plan, rank, world_size);
}

LoadPlan decode_load_plan(ByteSpan message, int rank, int world_size) {
  const PlanHeader header = read_header(message, PlanMessage::kLoadPlan, world_size);
  if (header.rank != static_cast<std::uint32_t>(rank)) {
    throw Error(ErrorCode::kConflict,
                fmt::format("a load plan of rank {} came for rank {}", header.rank, rank))
        .on_rank(rank);
  }
  return LoadPlanReader(message, header).read();
}

}  // namespace cairn
