// How the nodes of a pickle Graph lie in its array of words. For the machine and the graph only.
#pragma once

#include <cstdint>

#include "format/pickle.h"

namespace cairn::pickle {

// Word 0 of every graph is 0: the empty tuple, and "no segment".
//
// string, bytes, big int   [length, bytes padded to words]
// float                    [bits]
// tuple                    [count, items...]
// list, dict, set          [count * 2 + ordered, first segment, last segment]; segment [count, next,
// items...] object                   [callable, args, state, list items, dict items, flags] persistent id
// [payload]

inline constexpr int kContainerCount = 0;  // twice the count; the low bit marks an OrderedDict
inline constexpr int kContainerFirst = 1;
inline constexpr int kContainerLast = 2;
inline constexpr int kContainerWords = 3;
inline constexpr std::uint64_t kOrderedDict = 1;

inline constexpr int kObjectCallable = 0;
inline constexpr int kObjectArgs = 1;
inline constexpr int kObjectState = 2;
inline constexpr int kObjectList = 3;
inline constexpr int kObjectDict = 4;
inline constexpr int kObjectFlags = 5;
inline constexpr int kObjectWords = 6;
inline constexpr std::uint64_t kMadeByNew = 1;
inline constexpr std::uint64_t kHasState = 2;
inline constexpr std::uint64_t kReduced = 4;  // a Reducer took it: word 0 is its handle

// Words for values.
inline constexpr std::int64_t kInlineIntMax = (std::int64_t{1} << 59) - 1;
inline Ref small(Kind kind) { return Ref{static_cast<std::uint64_t>(kind)}; }
inline Ref inline_int(std::int64_t v) {
  return Ref{static_cast<std::uint64_t>(v) << 4 | static_cast<std::uint64_t>(Kind::kInt)};
}
inline Ref node(Kind kind, std::uint64_t index) { return Ref{index << 4 | static_cast<std::uint64_t>(kind)}; }

}  // namespace cairn::pickle
