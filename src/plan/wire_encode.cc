#include <limits>
#include <utility>

#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "plan/wire_values.h"

namespace cairn {

struct PlanEncoder::Sections {
  std::string name_lengths;
  std::string name_text;
  std::string dim_ranks;
  std::string dim_values;
  std::string specs;
  std::string rows;
  std::string paths;
  PodVector<std::uint32_t> name_order;  // by number in the message: the number in the tables
  std::uint32_t names = 0;
  std::uint32_t dims = 0;
  std::uint32_t spec_count = 0;
};

namespace {

std::uint32_t section_size(std::size_t size) {
  if (size >= std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "a plan is larger than 4 GiB").while_doing("encoding a plan");
  }
  return static_cast<std::uint32_t>(size);
}

// The text of a step: its name, or its number written into `digits`.
std::string_view text_of(const PathMap::Step& step, std::string& digits) {
  if (!step.is_number) return step.name;
  digits = std::to_string(step.number);
  return digits;
}

// Whether the steps are the name cut at its dots, the way of nearly every path: then nothing needs to travel.
bool is_name_cut_at_dots(const PathMap& paths, std::size_t i, std::string_view name) {
  std::size_t at = 0;
  std::uint64_t cursor = 0;
  while (const auto step = paths.step(i, cursor)) {
    if (step->is_number || at > name.size()) return false;
    const std::string_view part = name.substr(at, name.find('.', at) - at);
    if (step->name != part) return false;
    at += part.size() + 1;
  }
  return at == name.size() + 1;
}

// Whether the steps joined by dots are the name: then only their lengths need to travel.
bool spell(std::string_view name, const std::vector<PathMap::Step>& steps) {
  std::string digits;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i > 0) {
      if (!name.starts_with('.')) return false;
      name.remove_prefix(1);
    }
    const std::string_view text = text_of(steps[i], digits);
    if (!name.starts_with(text)) return false;
    name.remove_prefix(text.size());
  }
  return name.empty() && !steps.empty();
}

// 0 for the name cut at its dots; else varint(steps x 2 + spelled out), then per step varint(length x 2 + is
// number). The text follows only when it is spelled out.
void put_path(std::string& out, std::string_view name, const std::vector<PathMap::Step>& steps) {
  const bool spelled_out = !spell(name, steps);
  std::string digits;
  put_varint(out, 2 * std::uint64_t{steps.size()} + (spelled_out ? 1 : 0));
  for (const PathMap::Step& step : steps) {
    const std::string_view text = text_of(step, digits);
    put_varint(out, 2 * std::uint64_t{text.size()} + (step.is_number ? 1 : 0));
    if (spelled_out) out.append(text);
  }
}

}  // namespace

void PlanEncoder::start(const ItemTables& tables) {
  if (tables_ != &tables || stamp_ == std::numeric_limits<std::uint32_t>::max()) {
    tables_ = &tables;
    stamp_ = 0;
    names_.clear();
    dims_.clear();
    specs_.clear();
  }
  names_.resize(tables.names.size());
  dims_.resize(tables.dims.size());
  specs_.resize(tables.specs.size());
  ++stamp_;
}

std::uint32_t PlanEncoder::name(std::uint32_t id, Sections& out) {
  Slot& slot = names_[id];
  if (slot.stamp != stamp_) {
    slot = {stamp_, out.names++};
    out.name_order.push_back(id);
    put(out.name_lengths, static_cast<std::uint32_t>(tables_->names[id].size()));
    out.name_text.append(tables_->names[id]);
  }
  return slot.id;
}

std::uint32_t PlanEncoder::dims(std::uint32_t id, Sections& out) {
  if (id == kNoEntry) return kNoEntry;
  Slot& slot = dims_[id];
  if (slot.stamp != stamp_) {
    slot = {stamp_, out.dims++};
    const auto dims = tables_->dims[id];
    if (dims.size() > kMostWireRank) {
      throw Error(ErrorCode::kLimit, "a tensor has more than 255 dimensions").while_doing("encoding a plan");
    }
    out.dim_ranks.push_back(static_cast<char>(dims.size()));
    out.dim_values.append(reinterpret_cast<const char*>(dims.data()), dims.size_bytes());
  }
  return slot.id;
}

std::uint32_t PlanEncoder::spec(std::uint32_t id, Sections& out) {
  if (id == kNoEntry) return kNoEntry;
  if (specs_[id].stamp != stamp_) {
    const TensorSpec spec = tables_->spec(id);
    if (spec.extra != 0) {
      throw Error(ErrorCode::kUnsupported,
                  "tensor properties of a later torch cannot be sent to other ranks");
    }
    TensorSpec sent = spec;
    sent.size = dims(spec.size, out);
    put(out.specs, sent.packed());
    specs_[id] = {stamp_, out.spec_count++};
  }
  return specs_[id].id;
}

// Paths refer to names by number. Mostly they stand in the order of the items, and a look at the next name
// is enough; names that no item has come after all others.
void PlanEncoder::add_paths(const PathMap& paths, Sections& out) const {
  NameTable extra;
  std::vector<PathMap::Step> steps;
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string_view fqn = paths.fqn(i);
    std::optional<std::uint32_t> id;
    if (next < out.names && tables_->names[out.name_order[next]] == fqn) {
      id = next;
    } else if (const auto known = tables_->names.find(fqn); known && names_[*known].stamp == stamp_) {
      id = names_[*known].id;
    }
    if (!id) {
      const std::uint32_t before = extra.size();
      id = extra.intern(fqn);
      if (*id == before) {
        put(out.name_lengths, static_cast<std::uint32_t>(fqn.size()));
        out.name_text.append(fqn);
      }
      *id += out.names;
    } else {
      next = *id + 1;
    }
    put_varint(out.paths, *id);
    if (is_name_cut_at_dots(paths, i, fqn)) {
      put_varint(out.paths, 0);
      continue;
    }
    steps.clear();
    for (std::uint64_t cursor = 0; const auto step = paths.step(i, cursor);) steps.push_back(*step);
    put_path(out.paths, fqn, steps);
  }
  out.names += extra.size();
}

std::string PlanEncoder::encode(PlanMessage kind, const SavePlan& plan, int rank, int world_size) {
  Sections out;
  const WriteItems::Rows& items = plan.items.rows();
  const ItemTables none;
  start(items.tables == nullptr ? none : *items.tables);
  out.rows.reserve(items.rows.size() * sizeof(ItemRow));
  for (ItemRow row : items.rows) {
    row.name = name(row.name, out);
    row.offset = dims(row.offset, out);
    row.tensor = spec(row.tensor, out);
    row.chunk_offsets = dims(row.chunk_offsets, out);
    row.chunk_sizes = dims(row.chunk_sizes, out);
    put(out.rows, row);
  }

  PlanHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.flags = plan.usable ? PlanHeader::kUsable : 0;
  if (const auto* paths = std::get_if<PathMap>(&plan.planner_data)) {
    header.flags |= PlanHeader::kHasPaths;
    header.path_entries = section_size(paths->size());
    add_paths(*paths, out);
  }
  std::string attached;
  put_value(attached, plan.storage_data);
  const auto* value = std::get_if<Value>(&plan.planner_data);
  if (value != nullptr) header.flags |= PlanHeader::kHasValue;
  if (value != nullptr) put_value(attached, *value);

  if (items.tables == nullptr) tables_ = nullptr;  // it ends with this call

  header.rank = static_cast<std::uint32_t>(rank);
  header.world_size = static_cast<std::uint32_t>(world_size);
  header.items = section_size(items.rows.size());
  header.names = out.names;
  header.name_bytes = section_size(out.name_text.size());
  header.dims = out.dims;
  header.dim_values = section_size(out.dim_values.size() / sizeof(std::int64_t));
  header.specs = out.spec_count;
  header.path_bytes = section_size(out.paths.size());
  header.attached_bytes = section_size(attached.size());

  std::string message;
  message.reserve(sizeof(header) + out.name_lengths.size() + out.name_text.size() + out.dim_ranks.size() +
                  out.dim_values.size() + out.specs.size() + out.rows.size() + out.paths.size() +
                  attached.size());
  put(message, header);
  for (const std::string* section : {&out.name_lengths, &out.name_text, &out.dim_ranks, &out.dim_values,
                                     &out.specs, &out.rows, &out.paths, &attached}) {
    message += *section;
  }
  return message;
}

std::string encode_local_plan(const SavePlan& plan, int rank, int world_size) {
  return PlanEncoder().encode(PlanMessage::kLocalPlan, plan, rank, world_size);
}

std::string encode_global_plan(const SavePlan& plan, int rank, int world_size) {
  return PlanEncoder().encode(PlanMessage::kGlobalPlan, plan, rank, world_size);
}

}  // namespace cairn
