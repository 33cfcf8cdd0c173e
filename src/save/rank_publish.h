// What a rank that saves for itself does once its metadata is there (checkpoint/rank_sets.h).
#pragma once

#include "cairn/storage.h"
#include "checkpoint/rank_sets.h"

namespace cairn {

// When every rank of the set is there, and what they found still stands: lets them take its place, removes
// what it was made of, and returns true. So may every rank; also when another one has done it. A checkpoint
// of all ranks stays while a save of all ranks is under way, which will replace both.
bool complete_set(FileSystem& files, const RankSet& set, bool durable);

// Does the rest of that for ranks that died over it.
void complete_any_set(FileSystem& files, bool durable);

}  // namespace cairn
