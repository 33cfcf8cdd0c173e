#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/hash.h"
#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "plan/wire_values.h"

namespace cairn {
namespace {

constexpr std::size_t kMostRemembered = 1024;  // sections that are recognised when they come again

// A plan message cut into its sections; every section is known to be there.
struct PlanSections {
  PlanHeader header;
  ByteSpan name_lengths;
  ByteSpan name_text;
  ByteSpan dim_ranks;
  ByteSpan dim_values;
  ByteSpan specs;
  ByteSpan rows;
  ByteSpan paths;
  ByteSpan attached;

  // Names and paths are neighbours of nothing else: their bytes as one stretch.
  ByteSpan names() const { return {name_lengths.data(), name_lengths.size() + name_text.size()}; }
};

PlanSections cut(ByteSpan message, PlanMessage kind, int world_size) {
  PlanSections s;
  s.header = read_header(message, kind, world_size);
  WireReader reader(message);
  reader.take(sizeof(PlanHeader));
  const PlanHeader& h = s.header;
  s.name_lengths = reader.take(std::uint64_t{h.names} * 4);
  s.name_text = reader.take(h.name_bytes);
  s.dim_ranks = reader.take(h.dims);
  s.dim_values = reader.take(std::uint64_t{h.dim_values} * 8);
  s.specs = reader.take(std::uint64_t{h.specs} * 8);
  s.rows = reader.take(std::uint64_t{h.items} * sizeof(ItemRow));
  s.paths = reader.take(h.path_bytes);
  s.attached = reader.take(h.attached_bytes);
  reader.finish();
  return s;
}

[[noreturn]] void corrupt(const char* why) {
  throw Error(ErrorCode::kCorrupt, std::string("a message between ranks ") + why);
}

PodVector<std::uint32_t> read_names(const PlanSections& s, NameTable& names) {
  PodVector<std::uint32_t> ids;
  ids.reserve(s.header.names);
  WireReader text(s.name_text);
  for (std::uint32_t i = 0; i < s.header.names; ++i) {
    ids.push_back(names.intern(text.text(load<std::uint32_t>(s.name_lengths.data() + 4 * i))));
  }
  text.finish();
  return ids;
}

PodVector<std::uint32_t> read_dims(const PlanSections& s, DimsTable& table) {
  PodVector<std::uint32_t> ids;
  ids.reserve(s.header.dims);
  WireReader values(s.dim_values);
  std::int64_t dims[kMostWireRank];
  for (std::uint32_t i = 0; i < s.header.dims; ++i) {
    const auto rank = load<std::uint8_t>(s.dim_ranks.data() + i);
    const ByteSpan bytes = values.take(std::uint64_t{rank} * 8);
    if (rank > 0) std::memcpy(dims, bytes.data(), bytes.size());
    ids.push_back(table.intern({dims, rank}));
  }
  values.finish();
  return ids;
}

PodVector<std::uint32_t> read_specs(const PlanSections& s, const PodVector<std::uint32_t>& dims,
                                    ItemTables& tables) {
  PodVector<std::uint32_t> ids;
  ids.reserve(s.header.specs);
  for (std::uint32_t i = 0; i < s.header.specs; ++i) {
    const auto key = load<std::uint64_t>(s.specs.data() + 8 * i);
    TensorSpec spec = TensorSpec::unpacked(key);
    if (spec.packed() != key || static_cast<int>(spec.dtype) >= kDTypeCount ||
        spec.layout > Layout::kJagged || spec.memory_format > MemoryFormat::kPreserve || spec.extra != 0 ||
        spec.size >= dims.size()) {
      corrupt("describes a tensor that cannot be");
    }
    spec.size = dims[spec.size];
    ids.push_back(tables.specs.intern(spec.packed()));
  }
  return ids;
}

class RowReader {
 public:
  RowReader(const PlanSections& s, const PodVector<std::uint32_t>& names, ItemTables& tables)
      : s_(s),
        names_(names),
        tables_(tables),
        dims_(read_dims(s, tables.dims)),
        specs_(read_specs(s, dims_, tables)) {}

  PodVector<ItemRow> read() const {
    PodVector<ItemRow> rows;
    ItemRow* to = rows.extend(s_.header.items);
    for (std::uint32_t i = 0; i < s_.header.items; ++i) to[i] = row(i);
    return rows;
  }

 private:
  ItemRow row(std::uint32_t i) const {
    auto row = load<ItemRow>(s_.rows.data() + std::size_t{i} * sizeof(ItemRow));
    if (row.name >= names_.size()) corrupt("has an item without a name");
    row.name = names_[row.name];
    row.offset = optional(dims_, row.offset);
    row.tensor = optional(specs_, row.tensor);
    row.chunk_offsets = optional(dims_, row.chunk_offsets);
    row.chunk_sizes = optional(dims_, row.chunk_sizes);
    check(row);
    return row;
  }

  static std::uint32_t optional(const PodVector<std::uint32_t>& ids, std::uint32_t id) {
    if (id == kNoEntry) return kNoEntry;
    if (id >= ids.size()) corrupt("refers to something it does not hold");
    return ids[id];
  }

  void check(const ItemRow& row) const {
    if (row.type < 1 || row.type > 3) corrupt("has an item of no known type");
    if (row.is_tensor()) {
      if (row.tensor == kNoEntry || row.chunk_offsets == kNoEntry || row.chunk_sizes == kNoEntry) {
        corrupt("has a tensor item without tensor data");
      }
    } else if (row.tensor != kNoEntry || row.chunk_offsets != kNoEntry ||
               (row.chunk_sizes != kNoEntry && tables_.dims[row.chunk_sizes].size() != 1)) {
      corrupt("has an object with tensor data");
    }
  }

  const PlanSections& s_;
  const PodVector<std::uint32_t>& names_;
  ItemTables& tables_;
  PodVector<std::uint32_t> dims_;
  PodVector<std::uint32_t> specs_;
};

void add_step(PathMap& paths, std::string_view text, bool is_number) {
  if (!is_number) return paths.add_step(text);
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size() || std::to_string(number) != text) {
    corrupt("has a path with a number that is none");
  }
  paths.add_step(number);
}

// The name cut at its dots.
void add_parts(PathMap& paths, std::string_view name) {
  for (std::size_t at = 0; at <= name.size();) {
    const std::string_view part = name.substr(at, name.find('.', at) - at);
    paths.add_step(part);
    at += part.size() + 1;
  }
}

PathMap read_paths(const PlanSections& s, const PodVector<std::uint32_t>& names, const NameTable& table) {
  PathMap paths;
  WireReader reader(s.paths);
  for (std::uint32_t i = 0; i < s.header.path_entries; ++i) {
    const std::uint64_t id = reader.varint();
    if (id >= names.size()) corrupt("has a path without a name");
    std::string_view rest = table[names[id]];
    paths.begin_entry(rest);
    const std::uint64_t head = reader.varint();
    if (head == 0) {
      add_parts(paths, rest);
      continue;
    }
    for (std::uint64_t step = 0; step < head / 2; ++step) {
      const std::uint64_t length = reader.varint();
      if (head % 2 != 0) {
        add_step(paths, reader.text(length / 2), length % 2 != 0);
        continue;
      }
      if (step > 0 && !rest.starts_with('.')) corrupt("has a path that is not its name");
      if (step > 0) rest.remove_prefix(1);
      if (length / 2 > rest.size()) corrupt("has a path that is longer than its name");
      add_step(paths, rest.substr(0, length / 2), length % 2 != 0);
      rest.remove_prefix(length / 2);
    }
    if (head % 2 == 0 && !rest.empty()) corrupt("has a path that is shorter than its name");
  }
  reader.finish();
  return paths;
}

void read_attached(const PlanSections& s, SavePlan& plan) {
  WireReader reader(s.attached);
  plan.storage_data = read_value(reader);
  if ((s.header.flags & PlanHeader::kHasValue) != 0) plan.planner_data = read_value(reader);
  reader.finish();
}

void check_flags(const PlanHeader& header) {
  const bool paths = (header.flags & PlanHeader::kHasPaths) != 0;
  const bool value = (header.flags & PlanHeader::kHasValue) != 0;
  const bool usable = (header.flags & PlanHeader::kUsable) != 0;
  if (header.flags > 7 || (paths && value) ||
      (!paths && (header.path_entries != 0 || header.path_bytes != 0))) {
    corrupt("contradicts itself");
  }
  if (!usable && header.items != 0) corrupt("is \"as last time\" and has items");
}

}  // namespace

PlanHeader read_header(ByteSpan message, PlanMessage kind, int world_size) {
  if (message.size() < sizeof(PlanHeader)) {
    throw Error(ErrorCode::kCorrupt, fmt::format("a message between ranks has {} bytes", message.size()));
  }
  const auto header = load<PlanHeader>(message.data());
  if (header.magic != kPlanMagic) corrupt("is not one of cairn's");
  if (header.version != kPlanWireVersion) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("a rank sends plans of version {}, this one reads version {}: run the same cairn on "
                    "all ranks",
                    header.version, kPlanWireVersion));
  }
  if (header.kind != static_cast<std::uint8_t>(kind)) corrupt("is of another kind than expected");
  if (header.world_size != static_cast<std::uint32_t>(world_size)) {
    throw Error(ErrorCode::kConflict,
                fmt::format("a rank believes in {} ranks, this one in {}", header.world_size, world_size))
        .on_rank(static_cast<int>(header.rank));
  }
  if (header.rank >= header.world_size) corrupt("comes from a rank that does not exist");
  return header;
}

SavePlan decode_global_plan(ByteSpan message, int rank, int world_size) {
  const PlanSections s = cut(message, PlanMessage::kGlobalPlan, world_size);
  if (s.header.rank != static_cast<std::uint32_t>(rank)) {
    throw Error(ErrorCode::kConflict, fmt::format("the plan of rank {} reached another rank", s.header.rank))
        .on_rank(rank);
  }
  check_flags(s.header);
  auto tables = std::make_shared<ItemTables>();
  const PodVector<std::uint32_t> names = read_names(s, tables->names);
  SavePlan plan;
  plan.usable = (s.header.flags & PlanHeader::kUsable) != 0;
  plan.items.rows().rows = RowReader(s, names, *tables).read();
  if ((s.header.flags & PlanHeader::kHasPaths) != 0) plan.planner_data = read_paths(s, names, tables->names);
  plan.items.rows().tables = std::move(tables);
  read_attached(s, plan);
  return plan;
}

PlanGather::PlanGather(int world_size) : tables_(std::make_shared<ItemTables>()) {
  if (world_size < 1) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a world of {} ranks has no plans", world_size));
  }
  plans_.resize(static_cast<std::size_t>(world_size));
  arrived_.resize(plans_.size(), false);
}

void PlanGather::add(ByteSpan message) {
  const PlanSections s = cut(message, PlanMessage::kLocalPlan, static_cast<int>(plans_.size()));
  const auto rank = s.header.rank;
  try {
    check_flags(s.header);
    if (arrived_[rank]) throw Error(ErrorCode::kConflict, "a rank sent its plan twice");
    SavePlan& plan = plans_[rank];
    plan.usable = (s.header.flags & PlanHeader::kUsable) != 0;
    const Digest digest = xxh3_128(s.names());
    if (names_.size() > kMostRemembered) names_.clear();
    auto names = names_.find(digest);
    if (names == names_.end()) names = names_.emplace(digest, read_names(s, tables_->names)).first;
    if (names->second.size() != s.header.names) corrupt("has names that cannot be");
    plan.items.rows().rows = RowReader(s, names->second, *tables_).read();
    plan.items.rows().tables = tables_;
    if ((s.header.flags & PlanHeader::kHasPaths) != 0) {
      // The same paths of the same names are the same map, whoever sends them.
      Digest both = xxh3_128(s.paths);
      for (std::size_t i = 0; i < both.size(); ++i) both[i] ^= digest[i];
      if (paths_.size() > kMostRemembered) paths_.clear();
      auto paths = paths_.find(both);
      if (paths == paths_.end()) {
        paths = paths_.emplace(both, read_paths(s, names->second, tables_->names)).first;
      }
      plan.planner_data = paths->second;
    }
    read_attached(s, plan);
    arrived_[rank] = true;
  } catch (Error& e) {
    e.on_rank(static_cast<int>(rank)).while_doing("reading the plan of a rank");
    throw;
  }
}

std::vector<SavePlan> PlanGather::take() {
  std::string missing;
  for (std::size_t rank = 0; rank < arrived_.size() && missing.size() < 100; ++rank) {
    if (!arrived_[rank]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::kConflict, "no plan came from rank " + missing).while_doing("gathering plans");
  }
  names_.clear();
  paths_.clear();
  tables_.reset();
  return std::move(plans_);
}

}  // namespace cairn
