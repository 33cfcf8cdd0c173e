// The end records and the central directory of a zip archive, for ZipReader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/pod_vector.h"
#include "base/source.h"
#include "cairn/error.h"
#include "cairn/limits.h"

namespace cairn::zip {

Error corrupt(std::uint64_t offset, std::string message);

// A piece of a source in memory, moved to where the next bytes are wanted.
class Window {
 public:
  // Reads at least `piece` bytes at once, where there are as many.
  Window(const ByteSource& source, std::uint64_t piece) : source_(source), piece_(piece) {}

  // `length` bytes from `offset`, valid until the next call that needs bytes outside the window.
  const std::byte* at(std::uint64_t offset, std::uint64_t length) {
    if (offset < begin_ || offset - begin_ > bytes_.size() || length > bytes_.size() - (offset - begin_)) {
      move_to(offset, length);
    }
    return bytes_.data() + (offset - begin_);
  }

 private:
  void move_to(std::uint64_t offset, std::uint64_t length);

  const ByteSource& source_;
  std::uint64_t piece_;
  std::uint64_t begin_ = 0;
  PodVector<std::byte> bytes_;
};

// Where the central directory lies. It ends where the end records begin.
struct Directory {
  std::uint64_t entries = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  std::uint64_t end() const { return offset + size; }
};

// One record of the central directory. `name` points into the window.
struct Central {
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t size = 0;
  std::uint64_t header_offset = 0;
  std::string_view name;
  std::uint64_t bytes = 0;  // of this record

  bool has_descriptor() const;
};

// Reads the end records of an archive of `size` bytes, which must be its last bytes.
Directory read_end(Window& window, std::uint64_t size);

// Reads the record at `offset` of a directory that ends at `limit`.
Central read_central(Window& window, std::uint64_t offset, std::uint64_t limit, const Limits& limits);

// The zip64 block of an extra field that starts at `offset` of the source; empty when there is none.
// Blocks must fill the field exactly.
ByteSpan find_zip64(ByteSpan extra, std::uint64_t offset);

}  // namespace cairn::zip
