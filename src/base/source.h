// The kinds of ByteSource there are: files, memory, and slices of either.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "cairn/source.h"

namespace cairn {

// A file on disk, opened read-only. Error kNotFound, or kIo with errno (also for a directory).
std::shared_ptr<const ByteSource> open_file(const std::string& path);

// The same for a descriptor that is open already; takes it over, also when it throws. `path` is a name.
std::shared_ptr<const ByteSource> source_of_descriptor(int fd, const std::string& path);

// Somebody else's memory, which must outlive the source.
std::shared_ptr<const ByteSource> memory_source(ByteSpan bytes, std::string name = "memory");

// `length` bytes of another source from `offset` on; checked against its size here.
std::shared_ptr<const ByteSource> slice_of(std::shared_ptr<const ByteSource> source, std::uint64_t offset,
                                           std::uint64_t length);

// The whole source as a string. The caller has checked that its size is sensible.
std::string read_all(const ByteSource& source);

}  // namespace cairn
