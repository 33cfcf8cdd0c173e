// Sources that are no files: memory, and slices of other sources.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "cairn/source.h"

namespace cairn {

// Somebody else's memory, which must outlive the source.
std::shared_ptr<const ByteSource> memory_source(ByteSpan bytes, std::string name = "memory");

// `length` bytes of another source from `offset` on; checked against its size here.
std::shared_ptr<const ByteSource> slice_of(std::shared_ptr<const ByteSource> source, std::uint64_t offset,
                                           std::uint64_t length);

// For those who implement a source: Error(kCorrupt) unless the range lies in `size` bytes.
void check_range(std::uint64_t offset, std::uint64_t length, std::uint64_t size,
                 const std::string& file = "");

// The whole source as a string. The caller has checked that its size is sensible.
std::string read_all(const ByteSource& source);

}  // namespace cairn
