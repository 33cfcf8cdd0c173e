// Where parsers read from: a fixed run of bytes that can be read at any place.
//
// Parsers see only this, so the same code reads a file, a slice of a file, or memory. All
// implementations may be used by many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"

namespace cairn {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual std::uint64_t size() const = 0;
  // Fills `to` from `offset`. Error(kCorrupt) when that runs past the end, Error(kIo) when the system
  // fails. Offsets in errors count from the start of this source.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> to) const = 0;
  // What to call it in a message: a path.
  virtual const std::string& name() const = 0;
};

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
