// Options of the engine out of a Python dict. What is not named keeps its default; what is not known is an
// error.
#pragma once

#include "cairn/cairn.h"
#include "python.h"

namespace cairn::python {

// Those of a save and of its writing: "coordinator_rank", "use_collectives", "deadline" (seconds),
// "overwrite", "files_per_rank", "file_per_item", "durable", "checksums", "strong_hashes", "transforms",
// "transform" (a Transforms), "memory_budget", "bytes_per_second", "low_space" ("error", "warn", "ignore"),
// "progress", "files" (a Files).
void apply(nb::dict options, SaveOptions& save);
void apply(nb::dict options, WriteOptions& write);
// Those of a load: "coordinator_rank", "deadline", "verify" ("none", "usual", "full"), "threads",
// "memory_budget", "read_once", "allow_partial", "flatten", "progress", "files", "transform".
void apply(nb::dict options, LoadOptions& load);

// Python's progress(phase, done, total), or None.
ProgressCallback to_progress(nb::handle callable);

}  // namespace cairn::python
