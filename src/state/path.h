// Placing values by path, with a bound on what a path from a file may cost.
#pragma once

#include <cstdint>

#include "cairn/state_dict.h"

namespace cairn {

// How many list elements that nothing fills one path may create.
inline constexpr std::uint64_t kMaxPadding = 1ULL << 20;

// Puts `value` where `path` says, below `root` (a Dict). `padding` is what is left of the caller's bound
// on unfilled list elements; Error(kLimit) when it is spent.
void place(Value& root, const Path& path, Value value, std::uint64_t& padding);

}  // namespace cairn
