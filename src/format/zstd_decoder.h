// Unpacks a zstd stream from front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/source.h"

namespace cairn {

// Borrows its source. What comes out is never more than was asked for, so a stream that promises much costs
// nothing. Used by one thread at a time.
class ZstdDecoder {
 public:
  // Error(kUnsupported) in a build without libzstd.
  ZstdDecoder(const ByteSource& packed, std::uint64_t most_bytes);
  ~ZstdDecoder();

  // Fills `to` with what comes next. Returns less than its size only at the stream's end, which has been seen
  // to be one then. Error kCorrupt for a broken stream, kLimit for one that gives more than `most_bytes`.
  std::size_t read(std::span<std::byte> to);

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace cairn
