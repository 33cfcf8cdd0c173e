// What lies at a step's name: a whole checkpoint, or something that is not to be loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cairn/limits.h"
#include "cairn/storage.h"

namespace cairn {

struct StepState {
  bool complete = false;
  std::string why = {};     // it is not
  std::uint64_t bytes = 0;  // of the files that it is made of
};

// Reads the description and looks at the files that it names, no further. `name` is a folder of the run, or a
// checkpoint in one file; a folder may also hold several checkpoints, each in a folder of its own, as
// accelerate's does. What the system cannot tell is thrown, since an older step would be taken otherwise.
StepState look_at_step(const std::shared_ptr<FileSystem>& run, const FileEntry& name,
                       const Limits& limits = {});

}  // namespace cairn
