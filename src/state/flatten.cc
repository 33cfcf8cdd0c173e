#include <string>
#include <unordered_set>
#include <utility>

#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "state/nesting.h"
#include "state/path.h"

namespace cairn {
namespace {

// Whether a value stays one entry. Tuples always do, whatever they hold.
bool is_terminal(const Value& value, FlattenRule rule, int depth) {
  check_nesting(depth);
  const auto descended = [&](const Value& v) { return v.is_tensor() || !is_terminal(v, rule, depth + 1); };
  if (const List* list = value.get_if<List>()) {
    for (const Value& v : *list) {
      if (descended(v)) return false;
    }
    return true;
  }
  const Dict* dict = value.get_if<Dict>();
  if (dict == nullptr) return true;
  if (rule == FlattenRule::kCurrent) return false;
  for (const auto& [key, v] : *dict) {
    if (descended(v)) return false;
  }
  return true;
}

class Flattener {
 public:
  explicit Flattener(FlattenRule rule) : rule_(rule) {}

  void add(Key step, const Value& value) {
    path_.push_back(std::move(step));
    check_nesting(static_cast<int>(path_.size()));
    const Dict* dict = value.get_if<Dict>();
    if (is_terminal(value, rule_, static_cast<int>(path_.size())) || (dict != nullptr && dict->empty())) {
      add_entry(value);
    } else if (dict != nullptr) {
      for (const auto& [key, v] : *dict) add(to_string(key), v);
    } else {
      const List& list = value.get<List>();
      for (std::size_t i = 0; i < list.size(); ++i) add(static_cast<std::int64_t>(i), list[i]);
    }
    path_.pop_back();
  }

  Flattened take() { return std::move(entries_); }

 private:
  void add_entry(const Value& value) {
    std::string name = join(path_);
    if (!names_.insert(name).second) {
      throw Error(ErrorCode::kInvalidArgument, "duplicated flatten key " + name);
    }
    entries_.push_back({std::move(name), path_, value});
  }

  FlattenRule rule_;
  Path path_;
  Flattened entries_;
  std::unordered_set<std::string> names_;
};

}  // namespace

Flattened flatten(const StateDict& state, FlattenRule rule) {
  Flattener flattener(rule);
  for (const auto& [key, value] : state) flattener.add(to_string(key), value);
  return flattener.take();
}

StateDict unflatten(const Flattened& entries) {
  // Real lists are dense once every entry is placed; a file may ask for more than it fills.
  std::uint64_t padding = kMaxPadding + 64 * entries.size();
  Value root{Dict{}};
  for (const FlatEntry& entry : entries) place(root, entry.path, entry.value, padding);
  return std::move(root.get<Dict>());
}

}  // namespace cairn
