// What a file system gives to anybody: bytes moved between memory and files, with no format at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cairn {

// How the bytes were moved: how many files, each by a thread of its own, through the page cache or past it.
struct RawWay {
  int files = 1;
  bool direct = false;
};
std::vector<RawWay> raw_ways();  // that are tried: one file, a few, many

struct RawTime {
  double seconds = 0;
  RawWay way;
};

struct RawLimit {
  RawTime write;      // the best, each file made durable
  RawTime read;       // the best
  bool cold = false;  // nothing was in the page cache when the reads began
};

struct RawOptions {
  bool reads = true;
  // Told of each piece that was moved, by any thread. What it throws ends the measurement.
  std::function<void(std::uint64_t bytes)> moved = {};
};

// Moves `memory`, whose address and size are multiples of 4096, to new files in a new directory and back. The
// directory is removed, whatever happens. Error(kIo).
RawLimit raw_limit(const std::string& directory, std::span<std::byte> memory, const RawOptions& options = {});

}  // namespace cairn
