// The entries of a nested state where they are: flatten without its copies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cairn/state_dict.h"

namespace cairn {

struct EntryView {
  std::string name;  // join(path)
  Path path;
  const Value* value;  // inside the state
};

// Whether a list or tuple holds something that gets a name of its own: a tensor, or a dict.
bool holds_entries(const List& items, FlattenRule rule = FlattenRule::kCurrent);

// Cuts a dict as flatten does; of a list or tuple the positions are the first steps. A name that is there
// twice: Error(kInvalidArgument). A file can make names that are far longer than itself (one long key above
// many short ones): `pay` hears how many bytes an entry will take before it is made, and may throw.
std::vector<EntryView> entries_in(const Value& root, FlattenRule rule = FlattenRule::kCurrent,
                                  const std::function<void(std::uint64_t bytes)>& pay = {});

}  // namespace cairn
