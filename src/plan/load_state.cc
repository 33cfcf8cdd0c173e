#include "plan/load_state.h"

#include <algorithm>
#include <utility>

#include "base/near_names.h"
#include "cairn/error.h"
#include "plan/load_entries.h"

namespace cairn {
namespace {

// Finding near names looks at all names, so it is done for so many missing ones only.
constexpr std::size_t kMostSuggested = 20;

}  // namespace

void DefaultLoadPlanner::State::set_entries(Flattened flat) {
  entries = std::move(flat);
  arrived.clear();
  names = {};
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    if (names.intern(entries[i].name) != i) {
      throw Error(ErrorCode::kInvalidArgument, "two entries of the state have this name")
          .of_tensor(entries[i].name);
    }
  }
}

const FlatEntry* DefaultLoadPlanner::State::find(std::string_view fqn) const {
  const auto position = names.find(fqn);
  return position ? &entries[*position] : nullptr;
}

void DefaultLoadPlanner::State::place(const FlatEntry& entry, Value value) {
  if (options.flatten_state_dict || rebuilt) {
    set_element(*original, entry.path, std::move(value));
  } else {
    original->set(entry.path.front(), std::move(value));
  }
}

// A checkpoint of torch 2.3 or older keeps a dict without tensors as one entry. When it has names that
// the state lacks, and the old way of cutting the state gives one of them, all of the state is cut that
// way.
void DefaultLoadPlanner::State::look_for_old_keys(const std::function<Flattened()>& cut_as_before) {
  if (!options.flatten_state_dict || rebuilt || old_keys) return;
  NameTable absent;
  for (const auto& [fqn, stored] : metadata->state_dict_metadata) {
    if (!names.find(fqn)) absent.intern(fqn);
  }
  if (absent.size() == 0) return;
  Flattened old = cut_as_before();
  if (std::none_of(old.begin(), old.end(), [&](const FlatEntry& entry) { return absent.find(entry.name); }))
    return;
  old_keys = true;
  set_entries(std::move(old));
}

// torch loses empty dicts when it saves; here they are entries, and none of its checkpoints has them.
bool DefaultLoadPlanner::State::may_be_absent(const FlatEntry& entry) const {
  const auto* dict = entry.value.get_if<Dict>();
  return options.flatten_state_dict && !old_keys && dict != nullptr && dict->empty();
}

void DefaultLoadPlanner::State::add_missing(const FlatEntry& entry) {
  if (may_be_absent(entry)) return;
  LoadReport::Missing missing{entry.name, {}};
  if (report.missing.size() < kMostSuggested) {
    const auto& stored = metadata->state_dict_metadata;
    missing.near = near_names(entry.name, stored.size(),
                              [&](std::size_t i) { return std::string_view(stored[i].first); });
  }
  report.missing.push_back(std::move(missing));
}

void DefaultLoadPlanner::State::add_tensor(const FlatEntry& entry, std::size_t position, LoadPlan& plan) {
  const auto* stored = std::get_if<TensorStorageMetadata>(&metadata->state_dict_metadata[position].second);
  const auto destination = stored == nullptr ? std::nullopt : destination_of(entry);
  if (destination && destination->shape != stored->size) {
    report.shapes.push_back({entry.name, stored->size, destination->shape});
    return;
  }
  const DType saved = stored == nullptr ? DType::kBool : stored->properties.dtype;
  if (destination && destination->dtype != saved) {
    report.dtypes.push_back(
        {entry.name, saved, destination->dtype, !converts_exactly(saved, destination->dtype)});
  }
  const std::size_t before = plan.items.size();
  add_entry(*index, position, entry, plan.items);
  if (!destination) return;
  std::int64_t lacking = 0;
  for (const Box& box : destination->boxes) lacking += box.volume();
  for (std::size_t i = before; i < plan.items.size(); ++i) lacking -= plan.items[i].lengths.numel();
  if (lacking > 0) report.incomplete.push_back({entry.name, lacking});
}

LoadPlan DefaultLoadPlanner::State::plan(const std::function<Flattened()>& cut_as_before) {
  if (metadata == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "a load cannot be planned without the checkpoint's metadata");
  }
  report = {};
  look_for_old_keys(cut_as_before);
  LoadPlan plan;
  for (const FlatEntry& entry : entries) {
    if (const auto position = index->find(entry.name)) {
      add_tensor(entry, *position, plan);
    } else {
      add_missing(entry);
    }
  }
  if (!rebuilt) {
    for (const auto& [fqn, stored] : metadata->state_dict_metadata) {
      if (!names.find(fqn)) report.unexpected.push_back(fqn);
    }
  }
  LoadReportOptions rules = options.report;
  if (options.allow_partial_load && rules.missing == OnMismatch::kError) rules.missing = OnMismatch::kIgnore;
  require_loadable(report, rules);
  return plan;
}

}  // namespace cairn
