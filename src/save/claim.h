// The right to replace a checkpoint, where the file system cannot compare a file and replace it in one step.
//
// Two jobs may save under one id on machines that no lock connects. Each of them
//
//   1  writes its metadata beside the old one, under a name of its own     .metadata.{its save}
//   2  claims to be the next, by a name that nobody has taken              .cairn-claim.{old}.{n}
//   3  gives up when somebody has claimed after it
//   4  takes away the metadata (1) of those that claimed before it
//   5  gives up when the old checkpoint is not there any more
//   6  renames its metadata (1) to .metadata, and gives up when it is gone
//
// Of all that want to replace one checkpoint one can get through: whoever comes later takes the other's
// metadata away (4) or finds the new checkpoint (5). It does not matter whether the other lives, has died, or
// sleeps and wakes up much later: then there is nothing left that it could rename. And since nothing is taken
// away but names that nobody loads from, whatever .metadata is there has its files.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "cairn/error.h"
#include "cairn/metadata.h"
#include "cairn/storage.h"

namespace cairn {

// What a save puts in the place of what.
struct Replacement {
  SaveId save;
  std::optional<int> rank;  // in rank-local saves
  std::string_view bytes;   // of the new metadata
  std::string expected;     // version_of() the old one
  bool durable = true;
  const FileLock* lock = nullptr;  // that the save holds: when it is alone, and fails, nothing stays behind
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// Needs exclusive_create and atomic_rename. Error(kConflict) when another save was faster or came later; the
// old checkpoint is as it was, or the other's is there.
void replace_by_claim(FileSystem& files, const Replacement& replacement);

// Error(kTimeout) once it has passed: the last thing before a checkpoint appears.
void check_deadline(std::chrono::steady_clock::time_point deadline);

// For every save that finds another one in its way.
Error another_save_came_first(const FileSystem& files, const std::string& metadata);

}  // namespace cairn
