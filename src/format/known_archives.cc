#include "format/known_archives.h"

#include <algorithm>
#include <utility>

#include "format/zip_format.h"

namespace cairn {
namespace {

constexpr std::size_t kMostKinds = 16;
constexpr std::size_t kMostAround = 16 << 10;  // bytes of an archive besides its elements
constexpr std::size_t kCrcInDescriptor = 4;
constexpr std::size_t kCrcInCentral = 16;
constexpr std::size_t kCrcBytes = 4;

}  // namespace

bool KnownArchives::is_like(const Kind& kind, ByteSpan archive) {
  if (archive.size() != kind.length) return false;
  if (std::memcmp(archive.data(), kind.head.data(), kind.head.size()) != 0) return false;
  const std::byte* tail = archive.data() + archive.size() - kind.tail.size();
  std::size_t at = 0;
  for (const Hole& hole : kind.holes) {
    if (std::memcmp(tail + at, kind.tail.data() + at, hole.begin - at) != 0) return false;
    at = hole.end;
  }
  if (std::memcmp(tail + at, kind.tail.data() + at, kind.tail.size() - at) != 0) return false;
  return std::all_of(kind.equal_crcs.begin(), kind.equal_crcs.end(), [&](const auto& pair) {
    return load<std::uint32_t>(tail + pair.first) == load<std::uint32_t>(tail + pair.second);
  });
}

const TorchFile::Stored* KnownArchives::find(ByteSpan archive) {
  const auto found =
      std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) { return is_like(kind, archive); });
  if (found == kinds_.end()) return nullptr;
  kinds_.splice(kinds_.begin(), kinds_, found);
  Kind& kind = kinds_.front();
  const std::byte* tail = archive.data() + archive.size() - kind.tail.size();
  kind.tensor.crc = load<std::uint32_t>(tail + kind.equal_crcs.front().first);
  return &kind.tensor;
}

void KnownArchives::remember(ByteSpan archive, const TorchFile& file) {
  if (file.tensors().size() != 1 || !file.root().is<StoredTensor>()) return;
  Kind kind;
  kind.tensor = file.tensors().front();
  const std::uint64_t end = kind.tensor.data_offset + kind.tensor.storage_bytes;
  if (kind.tensor.storage_bytes == 0 || end > archive.size()) return;
  if (archive.size() - kind.tensor.storage_bytes > kMostAround) return;
  kind.length = archive.size();
  kind.head = as_text(archive.first(kind.tensor.data_offset));
  kind.tail = as_text(archive.subspan(end));
  if (!find_holes(kind, file.zip())) return;
  kinds_.push_front(std::move(kind));
  if (kinds_.size() > kMostKinds) kinds_.pop_back();
}

// The directory's records stand in the order of the entries, and TorchFile has found them well formed.
bool KnownArchives::find_holes(Kind& kind, const ZipReader& archive) {
  using namespace zip;
  const std::string elements = "data/" + kind.tensor.storage_key;
  const ZipEntry* data = archive.find(elements);
  const ZipEntry* id = archive.find(".data/serialization_id");
  std::uint64_t directory = kind.tail.size() - kEndBytes;
  // With a zip64 end record, its locator and it stand before the end record; the directory before them.
  std::uint64_t size = load<std::uint32_t>(kind.tail.data() + directory + 12);
  if (directory >= kLocatorBytes + kEnd64Bytes &&
      load<std::uint32_t>(kind.tail.data() + directory - kLocatorBytes) == kLocatorSignature) {
    directory -= kLocatorBytes + kEnd64Bytes;
    size = load<std::uint64_t>(kind.tail.data() + directory + 40);
  }
  if (data == nullptr || size > directory) return false;
  std::uint64_t at = directory - size;
  for (const ZipEntry& entry : archive.entries()) {
    const char* central = kind.tail.data() + at;
    if (&entry == data && !add_hole(kind, entry, at, false)) return false;
    if (&entry == id && !add_hole(kind, entry, at, true)) return false;
    at += kCentralBytes + load<std::uint16_t>(central + 28) + load<std::uint16_t>(central + 30);
  }
  std::sort(kind.holes.begin(), kind.holes.end(),
            [](const Hole& a, const Hole& b) { return a.begin < b.begin; });
  return true;
}

// The checksum of an entry whose directory record is at `central` of the tail, and its data if `with_data`.
// False for a form that is not torch's: a local header with a checksum of its own, or no descriptor.
bool KnownArchives::add_hole(Kind& kind, const ZipEntry& entry, std::uint64_t central, bool with_data) {
  using namespace zip;
  const std::uint64_t tail_at = kind.length - kind.tail.size();
  const char* record = kind.tail.data() + central;
  const std::uint64_t header = load<std::uint32_t>(record + 42);
  if ((load<std::uint16_t>(record + 8) & kFlagDescriptor) == 0) return false;
  const bool in_head = header + kLocalBytes <= kind.head.size();
  if (!in_head && header < tail_at) return false;
  const char* local = in_head ? kind.head.data() + header : kind.tail.data() + (header - tail_at);
  if (header >= kind.length || load<std::uint32_t>(local + 14) != 0) return false;
  if (entry.data_offset + entry.size < tail_at || (with_data && entry.data_offset < tail_at)) return false;
  const std::uint64_t data_end = entry.data_offset + entry.size - tail_at;
  const std::size_t descriptor = data_end + kCrcInDescriptor;
  if (with_data) kind.holes.push_back({entry.data_offset - tail_at, data_end});
  kind.holes.push_back({descriptor, descriptor + kCrcBytes});
  kind.holes.push_back({central + kCrcInCentral, central + kCrcInCentral + kCrcBytes});
  const std::pair<std::size_t, std::size_t> pair{descriptor, central + kCrcInCentral};
  kind.equal_crcs.insert(with_data ? kind.equal_crcs.end() : kind.equal_crcs.begin(), pair);
  return true;
}

}  // namespace cairn
