// Recognises archives that are like one just opened: a checkpoint of many small tensors is made of a few
// kinds of archives that differ in their elements and in the checksums of those.
//
//   if (const TorchFile::Stored* tensor = known.find(bytes)) ...
//   const auto file = TorchFile::open(memory_source(bytes)); known.remember(bytes, *file);
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "format/torch_file.h"

namespace cairn {

// Used by one thread. What it finds is what TorchFile::open finds in the same bytes: everything outside the
// elements has been compared with an archive that was read in full, except for the record with the
// serialization id, which nobody reads, and the checksums of both, which must agree with each other.
class KnownArchives {
 public:
  // The one tensor of the archive; null when it is of no known kind. Valid until the next call.
  const TorchFile::Stored* find(ByteSpan archive);
  // `file` was opened from exactly these bytes. Archives of another form (several tensors, no elements) are
  // not remembered.
  void remember(ByteSpan archive, const TorchFile& file);

 private:
  // Bytes of the tail that may differ: a record's checksum in its descriptor and in the directory, or its
  // data.
  struct Hole {
    std::size_t begin;
    std::size_t end;
  };
  struct Kind {
    std::uint64_t length = 0;
    std::string head;         // up to the elements
    std::string tail;         // all after them
    std::vector<Hole> holes;  // ascending, in the tail
    // Places in the tail where the same checksum must stand; the elements' first.
    std::vector<std::pair<std::size_t, std::size_t>> equal_crcs;
    TorchFile::Stored tensor;
  };
  static bool is_like(const Kind& kind, ByteSpan archive);
  static bool find_holes(Kind& kind, const ZipReader& archive);
  static bool add_hole(Kind& kind, const ZipEntry& entry, std::uint64_t central, bool with_data);

  std::list<Kind> kinds_;  // the one found last in front
};

}  // namespace cairn
