// An output file, worked out to the byte before the first one is written.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cairn/convert.h"
#include "checkpoint/checkpoint_source.h"
#include "convert/convert_entries.h"

namespace cairn {

// A stretch of an output file. Segments follow each other without a gap.
struct Segment {
  enum class Kind : std::uint8_t {
    kFixed,   // headers: bytes that are known
    kTensor,  // the elements of a tensor in row-major order
    kRaw,     // a storage as it lies in the source
  };
  Kind kind = Kind::kFixed;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::size_t index = 0;         // in FileLayout::fixed, the entries, or FileLayout::raw
  std::size_t entry = kNoEntry;  // the one that lies in it; of a storage that several share, the first

  static constexpr std::size_t kNoEntry = std::numeric_limits<std::size_t>::max();
};

struct FileLayout {
  std::string name;
  std::uint64_t bytes = 0;
  std::vector<Segment> segments;
  std::vector<std::string> fixed;
  std::vector<RawStorage> raw;
  // Makes the fixed bytes anew once the CRC-32 of every segment is known, for formats whose headers hold
  // them; lengths stay. Null: nothing changes.
  std::function<std::vector<std::string>(const std::vector<std::uint32_t>& sums)> finish;

  void add(Segment::Kind kind, std::uint64_t size, std::size_t index, std::size_t entry) {
    segments.push_back({kind, bytes, size, index, entry});
    bytes += size;
  }
  void add_fixed(std::string text) {
    add(Segment::Kind::kFixed, text.size(), fixed.size(), Segment::kNoEntry);
    fixed.push_back(std::move(text));
  }
};

// What a destination consists of. `files` are in the order in which they appear; `index`, if there is one,
// comes last.
struct OutputLayout {
  std::vector<FileLayout> files;
  std::vector<std::string> file_of;  // by entry: in which file it is
};

OutputLayout lay_out_safetensors(const std::vector<ConvertEntry>& entries, const std::string& file_name,
                                 const ConvertOptions& options);
OutputLayout lay_out_hugging_face(const std::vector<ConvertEntry>& entries, const ConvertOptions& options);
OutputLayout lay_out_torch(const std::vector<ConvertEntry>& entries, const CheckpointSource& source,
                           const std::string& file_name);

}  // namespace cairn
