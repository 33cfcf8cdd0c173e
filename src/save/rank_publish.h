// What a rank that saves for itself does once its metadata is there (checkpoint/rank_sets.h).
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "cairn/storage.h"
#include "checkpoint/rank_sets.h"

namespace cairn {

// How long another rank may take to retire the checkpoint that was here before, or to clean up.
inline constexpr std::chrono::seconds kPatience(3);

// Null when somebody else holds it.
std::unique_ptr<FileLock> lock_if_free(FileSystem& files, std::string_view name);
// Null when somebody else holds it for longer than ranks that clean up do.
std::unique_ptr<FileLock> lock_soon(FileSystem& files, std::string_view name);

// When every rank of the set is there, and what they found still stands: lets them take its place, removes
// what it was made of, and returns true. So may every rank; also when another one has done it. False, and
// nothing done, while the set does not stand: a checkpoint of all ranks stays as long as somebody holds its
// lock, another rank that is about to retire it or a save of all ranks that will replace both.
// Looks again and again for as long as `patience`.
bool complete_set(FileSystem& files, const RankSet& set, bool durable, const Limits& limits,
                  std::chrono::milliseconds patience = {});

// Does the rest of that for ranks that died over it.
void complete_any_set(FileSystem& files, bool durable, const Limits& limits);

}  // namespace cairn
