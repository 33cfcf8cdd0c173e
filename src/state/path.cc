#include "state/path.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cairn/error.h"
#include "cairn/state_dict.h"
#include "state/nesting.h"

namespace cairn {
namespace {

[[noreturn]] void bad_path(const Path& path, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "cannot place a value at '" + join(path) + "': " + why);
}

// The element of a list, which grows to hold it.
Value& list_slot(List& list, std::int64_t index, const Path& path, std::uint64_t& padding) {
  if (index < 0) bad_path(path, "a list position is negative");
  const auto at = static_cast<std::uint64_t>(index);
  if (at >= list.size()) {
    const std::uint64_t missing = at - list.size();
    if (missing > padding) {
      throw Error(ErrorCode::kLimit, "the path '" + join(path) + "' makes a list of " +
                                         std::to_string(index) + " elements that nothing fills");
    }
    padding -= missing;
    list.resize(at + 1);
  }
  return list[at];
}

// What `container` holds under `step`; made, as None, when absent. `fresh` says that it may be replaced
// by a container: an absent entry, or the None a list was padded with.
Value& slot(Value& container, const Key& step, const Path& path, std::uint64_t& padding, bool& fresh) {
  if (Dict* dict = container.get_if<Dict>()) {
    Value* found = dict->find(step);
    fresh = found == nullptr;
    if (fresh) {
      dict->set(step, None{});
      found = dict->find(step);
    }
    return *found;
  }
  List* list = container.get_if<List>();
  if (list == nullptr)
    bad_path(path, "'" + to_string(step) + "' is a step into something that holds no entries");
  const auto* index = std::get_if<std::int64_t>(&step);
  if (index == nullptr) bad_path(path, "'" + to_string(step) + "' is a name, but there is a list");
  Value& element = list_slot(*list, *index, path, padding);
  fresh = element.is<None>();
  return element;
}

}  // namespace

std::string to_string(const Key& key) {
  const auto* number = std::get_if<std::int64_t>(&key);
  return number != nullptr ? std::to_string(*number) : std::get<std::string>(key);
}

std::string join(const Path& path) {
  std::string name;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (i > 0) name += '.';
    name += to_string(path[i]);
  }
  return name;
}

void place(Value& root, const Path& path, Value value, std::uint64_t& padding) {
  if (path.empty()) throw Error(ErrorCode::kInvalidArgument, "a path has no steps");
  check_nesting(static_cast<int>(std::min<std::size_t>(path.size(), kMaxNesting + 1)));
  Value* at = &root;
  bool fresh = false;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    at = &slot(*at, path[i], path, padding, fresh);
    if (fresh) *at = std::holds_alternative<std::string>(path[i + 1]) ? Value(Dict{}) : Value(List{});
  }
  slot(*at, path.back(), path, padding, fresh) = std::move(value);
}

void set_element(StateDict& root, const Path& path, Value value) {
  Value moved(std::move(root));
  // The dict goes back to the caller on every way out.
  struct Restore {
    StateDict& root;
    Value& moved;
    ~Restore() { root = std::move(moved.get<Dict>()); }
  } restore{root, moved};
  std::uint64_t padding = kMaxPadding;
  place(moved, path, std::move(value), padding);
}

const Value* get_element(const StateDict& root, const Path& path) {
  const Dict* dict = &root;
  const List* list = nullptr;
  const Value* found = nullptr;
  for (const Key& step : path) {
    const auto* index = std::get_if<std::int64_t>(&step);
    if (dict != nullptr) {
      found = dict->find(step);
    } else if (list != nullptr && index != nullptr && *index >= 0 &&
               static_cast<std::uint64_t>(*index) < list->size()) {
      found = &(*list)[static_cast<std::size_t>(*index)];
    } else {
      return nullptr;
    }
    if (found == nullptr) return nullptr;
    dict = found->get_if<Dict>();
    list = found->get_if<List>();
  }
  return found;
}

}  // namespace cairn
