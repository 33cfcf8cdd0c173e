// Reads exactly the selected elements of one stored tensor into memory.
#pragma once

#include <cstdint>
#include <optional>

#include "base/source.h"
#include "cairn/selection.h"

namespace cairn {

// A tensor's elements as they lie in a source.
struct StoredElements {
  const ByteSource* source = nullptr;
  std::uint64_t storage_offset = 0;  // of the storage, in the source
  std::uint64_t storage_bytes = 0;
  std::uint64_t first_element = 0;  // of the tensor, in the storage, in elements
  DType dtype = DType::kFloat32;
  Shape shape;
  Shape strides;                     // in elements, none negative
  std::optional<std::uint32_t> crc;  // CRC-32 of the whole storage, when known
};

// At most this much is read at a time and held besides the destination.
inline constexpr std::uint64_t kReadBuffer = 8ULL << 20;
// Two runs of wanted bytes become one read when no more than this lies between them: a page is what the
// system reads anyway ...
inline constexpr std::uint64_t kSmallGap = 4096;
// ... or no more than this part of the wanted bytes (1 / 20: 5 %).
inline constexpr std::uint64_t kGapShare = 20;

// The bytes of a storage that were read one after the other, and their CRC-32.
struct ReadRun {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint32_t crc = 0;
  bool unbroken = false;  // else the rest means nothing
};

// Copies the elements of a complete selection to `to`, whose shape is the selection's. Values convert as
// cairn::copy does when the element types differ. Reads the wanted bytes and small gaps between them,
// each once, in ascending order unless strides overlap. When that makes the whole storage, its CRC is
// checked: Error kCorrupt when it is another. Error kCorrupt also when the elements leave the storage or
// the storage leaves the source. With `run`, what was read is summed whatever part of the storage it is: a
// caller who reads the storage in several calls joins the sums.
void read_box(const StoredElements& from, const Selection& selection, const TensorView& to,
              ReadRun* run = nullptr);

}  // namespace cairn
