// How fast checkpoints are saved and loaded in a directory, beside what its file system gives to anybody.
//
//   const BenchReport report = bench("/mnt/shared/scratch/bench", {.bytes = std::uint64_t{8} << 30});
//   const double of_raw = report.raw_write.seconds / report.save;
//
// Takes memory for the state and for a snapshot of it, and room for one checkpoint in the directory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "cairn/checkpoint_storage.h"

namespace cairn {

struct BenchOptions {
  std::uint64_t bytes = std::uint64_t{2} << 30;  // of the state
  int tensors = 64;                              // it has, all of one size
  int files = 0;                                 // that a save writes at once; 0: as a save chooses them
  int repetitions = 3;                           // the best one counts
  bool keep = false;                             // the last checkpoint stays
  ProgressCallback progress = {};                // in bytes moved, of all that will be
  // Another thread, or a signal, may set it: bench() cleans up and throws Error(kCancelled).
  const std::atomic<bool>* cancelled = nullptr;
};

// The same bytes with no format at all: the best of one file, a few and many, through the page cache and past
// it.
struct RawTiming {
  double seconds = 0;
  int files = 0;        // of the best way
  bool direct = false;  // past the page cache
};

// A save in the background, in seconds from the call on.
struct AsyncTiming {
  double returned = 0;  // the call has
  double staged = 0;    // the state may change
  double done = 0;      // the checkpoint is there
};

struct BenchReport {
  std::string checkpoint;   // where it is, or was
  std::string file_system;  // its type as the system calls it: "ext4", "tmpfs"; empty when nobody knows
  int cores = 0;
  std::uint64_t bytes = 0;  // of the state; what was asked for, rounded up to whole tensors
  int tensors = 0;
  int files = 0;      // that the checkpoint's data lies in
  bool cold = false;  // reads began with nothing in this machine's page cache
  RawTiming raw_write;
  RawTiming raw_read;
  double save = 0;    // seconds, durable, with checksums
  double load = 0;    // with checksums compared
  double verify = 0;  // the whole checkpoint
  AsyncTiming first_async;
  AsyncTiming next_async;  // the snapshot's memory is there already
};

// `path` is made if it is not there, and must be empty. What was made is removed in the end, whatever that
// is. Error(kConflict) when it is not empty, kIo (ENOSPC) or kLimit when there is too little room or memory,
// kCorrupt when what was written does not come back.
BenchReport bench(const std::string& path, const BenchOptions& options = {});

}  // namespace cairn
