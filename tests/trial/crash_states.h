// What a loss of power may leave of a directory, after each step of what was done to it.
//
// A step is durable when its file (for a name: its directory) was synced after it. Of the other steps any may
// have reached the disk, in any combination:
//
//   a name made, moved or removed    it happened or not; of a move also both names
//   a write                          all of it, nothing, its length alone (zeros), or some of its sectors of
//                                    512 bytes or pages of 4 KiB
//   a new length                     it happened or not
//
// That is more than any one file system does, and no less than POSIX allows, except that a move never loses
// both names.
//
// What is possible before a step that changes something is possible after it, too, since the step may be
// lost. So it is enough to look just before each sync, just before success is reported, and at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trace.h"

namespace cairn::trial {

struct CrashState {
  Tree tree;
  bool reported = false;    // success was, before the power went
  std::size_t point = 0;    // so many steps had been made
  std::vector<int> fates;   // of the steps that were not durable, in their order
  std::uint64_t tears = 0;  // which sectors and pages are there
};

struct StateCounts {
  std::uint64_t states = 0;        // all different
  std::size_t steps = 0;           // of the trace
  std::size_t points = 0;          // at which the power went
  std::size_t exhausted = 0;       // of those, the ones whose every state was looked at
  std::size_t most_undurable = 0;  // steps at one point
};

// Looks at up to `most` states, each once: all of a point's when they are few, and random ones of the others.
// What `look` throws ends it.
StateCounts for_each_crash_state(const Trace& trace, std::uint64_t most, std::uint64_t seed,
                                 const std::function<void(const CrashState&)>& look);

// The steps up to the loss of power, and what became of those that were not durable.
std::string story_of(const Trace& trace, const CrashState& state);

}  // namespace cairn::trial
