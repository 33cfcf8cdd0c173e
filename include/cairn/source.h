// Where readers read from: a fixed run of bytes that can be read at any place.
//
//   std::shared_ptr<const ByteSource> file = files.open("__0_0.distcp");
//   std::vector<std::byte> head(16);
//   file->read_at(0, head);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cairn {

// Formats see only this, so the same code reads a file, a slice of a file, or memory. All implementations
// may be used by many threads at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual std::uint64_t size() const = 0;
  // Fills `to` from `offset`. Error(kCorrupt) when that runs past the end, Error(kIo) when the system
  // fails. Offsets in errors count from the start of this source.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> to) const = 0;
  // Whether reads whose address, offset and length are multiples of 4096 take a shorter way.
  virtual bool prefers_alignment() const { return false; }
  // Whether a read takes long before its first byte, whatever its length: few large ones are better there.
  virtual bool is_far() const { return false; }
  // What to call it in a message: a path.
  virtual const std::string& name() const = 0;
};

}  // namespace cairn
