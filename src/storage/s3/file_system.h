// A folder of a bucket.
#pragma once

#include <memory>
#include <string>

#include "cairn/storage.h"
#include "storage/s3/bucket.h"

namespace cairn::s3 {

// `prefix` is "" or "run/step-1000/". Nothing is asked of the server.
std::unique_ptr<FileSystem> bucket_folder(std::shared_ptr<Bucket> bucket, std::string prefix);

}  // namespace cairn::s3
