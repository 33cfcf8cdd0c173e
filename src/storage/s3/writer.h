// A new object, being written.
//
// Small ones, and those that are looked for before they are there, are gathered and sent at once by commit().
// Larger ones go in parts while they are written: what covers a part is sent from where it lies, and
// write_at() returns when it has arrived; pieces of parts are gathered until a part is full. Bytes that were
// sent cannot be written again (Error(kUnsupported)).
#pragma once

#include <memory>
#include <string>

#include "cairn/storage.h"
#include "storage/s3/bucket.h"

namespace cairn::s3 {

// `prefix` is the folder's: where the store may be probed.
std::unique_ptr<FileWriter> object_writer(std::shared_ptr<Bucket> bucket, std::string prefix, std::string key,
                                          const CreateOptions& options);

}  // namespace cairn::s3
