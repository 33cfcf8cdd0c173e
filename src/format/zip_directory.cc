#include "format/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/zip_format.h"

namespace cairn::zip {
namespace {

constexpr std::uint64_t kAllEndBytes = kEnd64Bytes + kLocatorBytes + kEndBytes;

Error several_disks(std::uint64_t offset) {
  return Error(ErrorCode::kUnsupported, "the archive is spread over several disks").at(offset);
}

// The zip64 end record must lie just before its locator, which lies just before the end record, and agree
// with that one (`narrow`) wherever it has a number of its own.
Directory read_end64(Window& window, std::uint64_t size, const Directory& narrow) {
  const std::uint64_t locator_at = size - kEndBytes - kLocatorBytes;
  const std::byte* locator = window.at(locator_at, kLocatorBytes);
  const std::uint64_t place = load<std::uint64_t>(locator + 8);
  if (size < kAllEndBytes || place != size - kAllEndBytes) {
    throw corrupt(locator_at,
                  fmt::format("the zip64 end record is said to be at byte {}, not just before this", place));
  }
  if (load<std::uint32_t>(locator + 4) != 0 || load<std::uint32_t>(locator + 16) != 1) {
    throw several_disks(locator_at);
  }
  const std::byte* end = window.at(place, kEnd64Bytes);
  if (load<std::uint32_t>(end) != kEnd64Signature) throw corrupt(place, "there is no zip64 end record here");
  if (load<std::uint64_t>(end + 4) != kEnd64Bytes - 12) {
    throw corrupt(place, "the zip64 end record has an unexpected length");
  }
  const Directory wide{load<std::uint64_t>(end + 32), load<std::uint64_t>(end + 48),
                       load<std::uint64_t>(end + 40)};
  if (load<std::uint64_t>(end + 16) != 0 || load<std::uint64_t>(end + 24) != wide.entries) {
    throw several_disks(place);
  }
  if ((narrow.entries != wide.entries && narrow.entries != kSaturated16) ||
      (narrow.offset != wide.offset && narrow.offset != kSaturated32) ||
      (narrow.size != wide.size && narrow.size != kSaturated32)) {
    throw corrupt(place, "the zip64 end record and the end record disagree");
  }
  return wide;
}

// Takes from the zip64 block the numbers whose 32-bit field is saturated: these, all of these, no others.
void resolve_zip64(Central& central, ByteSpan extra, std::uint64_t offset) {
  ByteSpan zip64 = find_zip64(extra, offset);
  std::uint64_t* const fields[] = {&central.size, &central.stored_size, &central.header_offset};
  for (std::uint64_t* field : fields) {
    if (*field != kSaturated32) continue;
    if (zip64.size() < 8) throw corrupt(offset, "a zip64 extra field lacks a number that the record needs");
    *field = load<std::uint64_t>(zip64.data());
    zip64 = zip64.subspan(8);
  }
  if (!zip64.empty()) throw corrupt(offset, "a zip64 extra field holds more than the record needs");
}

}  // namespace

Error corrupt(std::uint64_t offset, std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message)).at(offset);
}

void Window::move_to(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t size = source_.size();
  if (offset > size || length > size - offset) {
    throw corrupt(offset,
                  fmt::format("{} bytes are expected here, but the archive has {} in all", length, size));
  }
  const std::uint64_t count = std::min(std::max(length, piece_), size - offset);
  bytes_.clear();
  source_.read_at(offset, {bytes_.extend(count), count});
  begin_ = offset;
}

bool Central::has_descriptor() const { return (flags & kFlagDescriptor) != 0; }

Directory read_end(Window& window, std::uint64_t size) {
  if (size < kEndBytes) throw corrupt(0, fmt::format("{} bytes are too few for a zip archive", size));
  const std::uint64_t at = size - kEndBytes;
  const std::byte* end = window.at(at, kEndBytes);
  if (load<std::uint32_t>(end) != kEndSignature) {
    throw corrupt(at,
                  "there is no zip end record here: this is not a zip archive, or it is cut off, or "
                  "something follows it");
  }
  if (load<std::uint16_t>(end + 20) != 0) throw corrupt(at, "the archive has a comment");
  if (load<std::uint32_t>(end + 4) != 0 || load<std::uint16_t>(end + 8) != load<std::uint16_t>(end + 10)) {
    throw several_disks(at);
  }
  Directory directory{load<std::uint16_t>(end + 10), load<std::uint32_t>(end + 16),
                      load<std::uint32_t>(end + 12)};
  std::uint64_t directory_end = at;
  if (at >= kLocatorBytes && load<std::uint32_t>(window.at(at - kLocatorBytes, 4)) == kLocatorSignature) {
    directory = read_end64(window, size, directory);
    directory_end = size - kAllEndBytes;
  }
  if (directory.offset > directory_end || directory.size != directory_end - directory.offset) {
    throw corrupt(directory_end, fmt::format("the directory must end here, but is {} bytes from byte {} on",
                                             directory.size, directory.offset));
  }
  return directory;
}

Central read_central(Window& window, std::uint64_t offset, std::uint64_t limit, const Limits& limits) {
  if (limit - offset < kCentralBytes) throw corrupt(offset, "the directory ends inside a record");
  const std::byte* p = window.at(offset, kCentralBytes);
  if (load<std::uint32_t>(p) != kCentralSignature) throw corrupt(offset, "there is no directory record here");
  const std::size_t name_bytes = load<std::uint16_t>(p + 28);
  const std::size_t extra_bytes = load<std::uint16_t>(p + 30);
  const std::size_t bytes = kCentralBytes + name_bytes + extra_bytes;
  if (load<std::uint16_t>(p + 32) != 0) throw corrupt(offset, "a directory record has a comment");
  if (load<std::uint16_t>(p + 34) != 0) throw several_disks(offset);
  if (limit - offset < bytes) throw corrupt(offset, "the directory ends inside a record");
  if (const auto version = load<std::uint8_t>(p + 6); version > kMostVersion) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a record needs version {}.{} of the zip format", version / 10, version % 10))
        .at(offset);
  }
  if (name_bytes > limits.zip_name_bytes) {
    throw Error(ErrorCode::kLimit, fmt::format("a record's name has {} bytes, more than the {} allowed",
                                               name_bytes, limits.zip_name_bytes))
        .at(offset);
  }
  p = window.at(offset, bytes);
  Central central;
  central.flags = load<std::uint16_t>(p + 8);
  central.method = load<std::uint16_t>(p + 10);
  central.crc = load<std::uint32_t>(p + 16);
  central.stored_size = load<std::uint32_t>(p + 20);
  central.size = load<std::uint32_t>(p + 24);
  central.header_offset = load<std::uint32_t>(p + 42);
  central.name = as_text({p + kCentralBytes, name_bytes});
  central.bytes = bytes;
  const std::uint64_t extra_at = offset + kCentralBytes + name_bytes;
  resolve_zip64(central, {p + kCentralBytes + name_bytes, extra_bytes}, extra_at);
  return central;
}

ByteSpan find_zip64(ByteSpan extra, std::uint64_t offset) {
  ByteSpan found;
  while (!extra.empty()) {
    const std::size_t size = extra.size() < 4 ? 0 : load<std::uint16_t>(extra.data() + 2);
    if (extra.size() < 4 + size) throw corrupt(offset, "an extra field is cut off");
    if (load<std::uint16_t>(extra.data()) == kZip64Extra) {
      if (size == 0) throw corrupt(offset, "a zip64 extra field is empty");
      if (!found.empty()) throw corrupt(offset, "a header has two zip64 extra fields");
      found = extra.subspan(4, size);
    }
    extra = extra.subspan(4 + size);
    offset += 4 + size;
  }
  return found;
}

}  // namespace cairn::zip
