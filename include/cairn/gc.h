// Removes what dead saves left behind.
//
//   const GcReport report = gc("run/step-1000");
//   std::cout << report.files.size() << " files, " << report.bytes << " bytes\n";
//
// A save that was killed leaves data files, manifests and half-written files. They carry cairn's marks and
// the id of their save, so they are told from everything else: only such files go, and only when no
// description (.metadata, or a rank's own) refers to their save. PyTorch's own files are never touched. The
// next save into the directory removes them too.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/limits.h"
#include "cairn/storage.h"

namespace cairn {

struct GcOptions {
  // Where locks keep nobody out and holders are known by renewing them (object stores): what was written this
  // long ago, by nobody who is known to be alive, is debris.
  std::chrono::seconds age = std::chrono::hours(1);
  bool dry_run = false;  // only say what would go; locks of dead saves go all the same
  // The caller knows that no save is under way. Needed on file systems without locks.
  bool force = false;
  Limits limits = {};
};

struct GcReport {
  std::vector<FileEntry> files;  // that were removed, or would be
  std::uint64_t bytes = 0;       // of them all
};

// Takes the checkpoint's lock, so that no save is under way meanwhile: Error(kConflict) when one is. When a
// description is there but cannot be read, that is the Error, and nothing is removed.
//
// On object stores a save that was taken for dead may wake up. It cannot publish any more: before its files
// go
// `.metadata` becomes another one, with the same content; or an empty one, which is no checkpoint, where
// there was none.
GcReport gc(const std::string& url, const GcOptions& options = {});
GcReport gc(FileSystem& files, const GcOptions& options = {});

}  // namespace cairn
