// Reading an object.
#pragma once

#include <memory>
#include <string>

#include "cairn/source.h"
#include "storage/s3/bucket.h"

namespace cairn::s3 {

// That very object and no later one: when it has been replaced or removed meanwhile, reading is
// Error(kNotFound) with errno ESTALE. Without an ETag, whatever has the key.
std::shared_ptr<const ByteSource> object_source(std::shared_ptr<Bucket> bucket, std::string key,
                                                std::uint64_t size, std::string etag);

}  // namespace cairn::s3
