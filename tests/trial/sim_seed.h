// One seed, from its first save to its last.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace cairn::sim {

struct Counts {
  std::uint64_t seeds = 0, ranks = 0, saves = 0, loads = 0, commits = 0, done = 0, crashes = 0, hangs = 0,
                jumps = 0, faults = 0, letters = 0, strays = 0, disagreements = 0, turns = 0;
  std::map<std::string, std::uint64_t> errors;  // by kind
};

struct SeedResult {
  std::uint64_t hash = 0;
  std::optional<std::string> broken;  // what was promised and does not hold
  std::deque<std::string> tail;       // of the trace, when it was asked for
};

SeedResult run_seed(std::uint64_t seed, bool traced, Counts& counts);

}  // namespace cairn::sim
