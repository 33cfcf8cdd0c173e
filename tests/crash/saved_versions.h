// A state whose every element says which version it is of, and what must be true of a directory it was saved
// in.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

#include "cairn/cairn.h"
#include "testing/states.h"
#include "trainer_version.h"

namespace cairn {

inline constexpr int kRanks = 4;

// Tensors of a few hundred KiB for each rank, so that a save takes a while.
inline StateDict state_of(int rank, int version) {
  StateDict state = trainer_state(rank, kRanks, version);
  const MeshLayout rows = rows_over(kRanks);
  for (int i = 0; i < 3; ++i)
    state.set(fmt::format("large{}", i), part_of(numbered({1024, 256}, version + i), rows, rank));
  return state;
}

inline void save_version(Group& group, const std::string& dir, int version,
                         std::chrono::nanoseconds deadline = std::chrono::seconds(30),
                         SavePlanner* planner = nullptr, bool collectives = true) {
  SaveOptions options;
  options.use_collectives = collectives;
  options.group = &group;
  options.deadline = deadline;
  options.planner = planner;
  save(state_of(group.rank(), version), dir, options);
}

inline void require_large(const StateDict& state, int version) {
  for (int i = 0; i < 3; ++i) {
    const Value* const found = state.find(fmt::format("large{}", i));
    require(found != nullptr && *found == Value(numbered({1024, 256}, version + i)),
            fmt::format("'large{}' is not that of version {}", i, version));
  }
}

// The version of a whole state; throws when it is none.
inline int version_of(const StateDict& state) {
  const int version = trainer_version(state);
  require_large(state, version);
  return version;
}

// The version of a checkpoint that is whole; nullopt when there is none; throws when it is neither.
inline std::optional<int> version_in(const std::string& dir) {
  if (!std::filesystem::exists(dir + "/.metadata")) return std::nullopt;
  return version_of(load_into_new(dir));
}

inline std::ptrdiff_t files_in(const std::string& dir) {
  return std::filesystem::exists(dir) ? std::distance(std::filesystem::directory_iterator(dir), {}) : 0;
}

// The data files of all ranks, the manifest and the metadata.
inline constexpr std::ptrdiff_t kFilesOfASave = kRanks + 2;

// After a save that nobody disturbed: it is there, and nothing of older or dead ones.
inline void require_saved(const std::string& dir, int version) {
  require(version_in(dir) == version, "an undisturbed save is not there");
  require(files_in(dir) == kFilesOfASave, "an undisturbed save left something of another");
}

}  // namespace cairn
