#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/pod_vector.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "state/entries.h"
#include "state/nesting.h"
#include "state/path.h"

namespace cairn {
namespace {

class Flattener {
 public:
  Flattener(FlattenRule rule, const std::function<void(std::uint64_t bytes)>& pay) : rule_(rule), pay_(pay) {}

  void add(Key step, const Value& value) {
    const std::size_t above = path_bytes_;
    path_bytes_ += std::holds_alternative<std::string>(step) ? std::get<std::string>(step).size() : 20;
    path_.push_back(std::move(step));
    cairn::check_nesting(static_cast<int>(path_.size()));
    const Dict* dict = value.get_if<Dict>();
    if (is_terminal(value, static_cast<int>(path_.size())) || (dict != nullptr && dict->empty())) {
      add_entry(value);
    } else if (dict != nullptr) {
      for (const auto& [key, v] : *dict) add(to_string(key), v);
    } else {
      const List& list = value.get<List>();
      for (std::size_t i = 0; i < list.size(); ++i) add(static_cast<std::int64_t>(i), list[i]);
    }
    path_.pop_back();
    path_bytes_ = above;
  }

  bool descends_into(const Value& value) { return value.is_tensor() || !is_terminal(value, 1); }

  std::vector<EntryView> take() {
    refuse_duplicates();
    return std::move(entries_);
  }

 private:
  // Whether a value stays one entry. Tuples always do, whatever they hold. A container inside others is
  // asked about at each of their levels.
  bool is_terminal(const Value& value, int depth) {
    cairn::check_nesting(depth);
    const List* list = value.get_if<List>();
    const Dict* dict = value.get_if<Dict>();
    if (const Tuple* tuple = value.get_if<Tuple>()) check_nesting(*tuple, depth);
    if (list == nullptr && dict == nullptr) return true;
    if (dict != nullptr && rule_ == FlattenRule::kCurrent) return false;
    if (branches_.contains(&value)) return false;
    const auto descended = [&](const Value& v) { return v.is_tensor() || !is_terminal(v, depth + 1); };
    bool terminal = true;
    if (list != nullptr) {
      for (auto v = list->begin(); terminal && v != list->end(); ++v) terminal = !descended(*v);
    } else {
      for (const auto* entry = dict->begin(); terminal && entry != dict->end(); ++entry)
        terminal = !descended(entry->second);
    }
    if (!terminal) branches_.insert(&value);
    return terminal;
  }

  // What is inside a tuple is never cut, but copied and written as a whole.
  static void check_nesting(const Tuple& tuple, int depth) {
    cairn::check_nesting(depth);
    for (const Value& item : tuple.items) check_inside(item, depth + 1);
  }
  static void check_inside(const Value& value, int depth) {
    if (const Tuple* tuple = value.get_if<Tuple>()) return check_nesting(*tuple, depth);
    if (const List* list = value.get_if<List>()) {
      cairn::check_nesting(depth);
      for (const Value& item : *list) check_inside(item, depth + 1);
    } else if (const Dict* dict = value.get_if<Dict>()) {
      cairn::check_nesting(depth);
      for (const auto& [key, item] : *dict) check_inside(item, depth + 1);
    }
  }

  void add_entry(const Value& value) {
    // A name, and each step of a path with a string of its own.
    constexpr std::size_t kStep = sizeof(Key) + 48;
    if (pay_) pay_(2 * path_bytes_ + path_.size() * kStep + sizeof(EntryView));
    entries_.push_back({join(path_), path_, &value});
  }

  void refuse_duplicates() const {
    constexpr std::uint32_t kNoEntry = std::numeric_limits<std::uint32_t>::max();
    if (entries_.size() >= kNoEntry) throw Error(ErrorCode::kLimit, "a state of more than 2^32 - 2 entries");
    PodVector<std::uint32_t> slots;  // at most half full
    slots.resize(std::bit_ceil(2 * entries_.size() + 2), kNoEntry);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
      const std::string& name = entries_[i].name;
      std::size_t at = seeded_hash(name) & (slots.size() - 1);
      for (; slots[at] != kNoEntry; at = (at + 1) & (slots.size() - 1))
        if (entries_[slots[at]].name == name)
          throw Error(ErrorCode::kInvalidArgument, "duplicated flatten key " + name);
      slots[at] = i;
    }
  }

  const FlattenRule rule_;
  const std::function<void(std::uint64_t bytes)>& pay_;
  Path path_;
  std::size_t path_bytes_ = 0;
  std::unordered_set<const Value*> branches_;  // lists, and dicts of the old rule, that are cut further
  std::vector<EntryView> entries_;
};

}  // namespace

bool holds_entries(const List& items, FlattenRule rule) {
  const std::function<void(std::uint64_t bytes)> free;
  Flattener flattener(rule, free);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return flattener.descends_into(v); });
}

std::vector<EntryView> entries_in(const Value& root, FlattenRule rule,
                                  const std::function<void(std::uint64_t bytes)>& pay) {
  Flattener flattener(rule, pay);
  const auto add_all = [&](const List& items) {
    for (std::size_t i = 0; i < items.size(); ++i) flattener.add(std::to_string(i), items[i]);
  };
  if (const Dict* dict = root.get_if<Dict>())
    for (const auto& [key, value] : *dict) flattener.add(to_string(key), value);
  if (const List* list = root.get_if<List>()) add_all(*list);
  if (const Tuple* tuple = root.get_if<Tuple>()) add_all(tuple->items);
  return flattener.take();
}

Flattened flatten(const StateDict& state, FlattenRule rule) {
  const std::function<void(std::uint64_t bytes)> free;
  Flattener flattener(rule, free);
  for (const auto& [key, value] : state) flattener.add(to_string(key), value);
  Flattened entries;
  std::vector<EntryView> views = flattener.take();
  entries.reserve(views.size());
  for (EntryView& view : views) entries.push_back({std::move(view.name), std::move(view.path), *view.value});
  return entries;
}

StateDict unflatten(const Flattened& entries) {
  // Real lists are dense once every entry is placed; a file may ask for more than it fills.
  std::uint64_t padding = kMaxPadding + 64 * entries.size();
  Value root{Dict{}};
  for (const FlatEntry& entry : entries) place(root, entry.path, entry.value, padding);
  return std::move(root.get<Dict>());
}

}  // namespace cairn
