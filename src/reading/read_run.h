// Reads what a load wants with several threads, and ends with the first failure.
#pragma once

#include "cairn/checkpoint_storage.h"
#include "reading/read_work.h"

namespace cairn {

// As many as were asked for, or suit the machine and the place, and as the memory allows.
int threads_for(const ReadOptions& options, const FileSystem& files);

// `report` is filled also when it throws.
void run_reads(ReadWork& work, LoadPlanner& planner, const FileSystem& files, const ReadOptions& options,
               const ReaderRole& role, ReadReport& report);

}  // namespace cairn
