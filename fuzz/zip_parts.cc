#include "zip_parts.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "format/zip_format.h"

namespace cairn::fuzz {
namespace {

using namespace cairn::zip;

constexpr std::size_t kMostRecords = 64;

std::uint64_t number(std::string_view text, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  if (at <= text.size() && bytes <= text.size() - at) std::memcpy(&value, text.data() + at, bytes);
  return value;
}

// An extra field without its zip64 and padding blocks, which put_together() makes itself.
std::string other_blocks(std::string_view extra) {
  std::string kept;
  while (extra.size() >= 4) {
    const auto id = number(extra, 0, 2);
    const std::size_t length = std::min<std::size_t>(4 + number(extra, 2, 2), extra.size());
    if (id != kZip64Extra && id != kPaddingExtra) kept += extra.substr(0, length);
    extra.remove_prefix(length);
  }
  return kept + std::string(extra);
}

// The local header and the data of a record that the directory puts at `at`.
void take_local(std::string_view archive, std::size_t at, std::size_t stored, ZipPart& record) {
  if (at > archive.size() || archive.size() - at < kLocalBytes) return;
  const std::size_t name = number(archive, at + 26, 2);
  const std::size_t extra = number(archive, at + 28, 2);
  const std::size_t begin = std::min(at + kLocalBytes + name, archive.size());
  const std::string_view field = archive.substr(begin, extra);
  record.local_extra = other_blocks(field);
  record.padded = record.local_extra.size() != field.size();
  const std::size_t data = std::min(begin + extra, archive.size());
  record.data = archive.substr(data, stored);
}

// Puts numbers down and notes where.
class Writer {
 public:
  explicit Writer(std::vector<ZipField>& fields) : fields_(fields) { fields_.clear(); }
  std::string out;

  void put(std::uint64_t value, std::size_t bytes) {
    fields_.push_back({out.size(), bytes});
    out.append(reinterpret_cast<const char*>(&value), bytes);
  }
  void narrow(std::uint64_t value) { put(std::min<std::uint64_t>(value, kSaturated32), 4); }

 private:
  std::vector<ZipField>& fields_;
};

std::string block(std::uint16_t id, std::initializer_list<std::uint64_t> numbers) {
  std::string made(4, '\0');
  const auto length = static_cast<std::uint16_t>(8 * numbers.size());
  std::memcpy(made.data(), &id, 2);
  std::memcpy(made.data() + 2, &length, 2);
  for (const std::uint64_t n : numbers) made.append(reinterpret_cast<const char*>(&n), 8);
  return made;
}

std::string padding(std::size_t at) {
  const auto length = static_cast<std::uint16_t>((64 - (at + 4) % 64) % 64);
  std::string made("FB\0\0", 4);
  std::memcpy(made.data() + 2, &length, 2);
  return made.append(length, 'Z');
}

void settle(ZipPart& record) {
  if (record.method != kDeflated) {
    record.size = record.data.size();
    record.crc = crc_of(record.data);
  }
  if (record.no_crc && record.size > 0) record.crc = 0;
  record.flags = static_cast<std::uint16_t>((record.flags & ~kFlagDescriptor) |
                                            (record.descriptor ? kFlagDescriptor : 0));
}

void put_local(Writer& to, const ZipPart& record) {
  const std::uint64_t at = to.out.size();
  std::string extra = record.local_extra;
  if (record.local_wide == 1) extra += block(kZip64Extra, {record.size, record.data.size()});
  if (record.local_wide == 2) extra += block(kZip64Extra, {at});
  if (record.local_wide == 3) extra += block(kZip64Extra, {record.size, record.data.size(), at});
  if (record.padded) extra += padding(at + kLocalBytes + record.name.size() + extra.size());
  const bool later = record.descriptor;
  to.put(kLocalSignature, 4);
  to.put(20, 2);
  to.put(record.flags, 2);
  to.put(record.method, 2);
  to.out.append(4, '\0');  // the time
  to.put(later ? 0 : record.crc, 4);
  to.narrow(later ? 0 : record.data.size());
  to.narrow(later ? 0 : record.size);
  to.put(record.name.size(), 2);
  to.put(extra.size(), 2);
  to.out += record.name + extra + record.data;
  if (!later) return;
  const std::size_t width = record.local_wide == 0 ? 4 : 8;
  to.put(kDescriptorSignature, 4);
  to.put(record.crc, 4);
  to.put(record.data.size(), width);
  to.put(record.size, width);
}

void put_central(Writer& to, const ZipPart& record, std::uint64_t at) {
  std::string wide;
  const auto field = [&](unsigned bit, std::uint64_t value) -> std::uint64_t {
    if ((record.central_wide & bit) == 0) return value;
    wide.append(reinterpret_cast<const char*>(&value), 8);
    return kSaturated32;
  };
  const std::uint64_t size = field(1, record.size);
  const std::uint64_t stored = field(2, record.data.size());
  const std::uint64_t offset = field(4, at);
  std::string extra = record.central_extra;
  if (!wide.empty()) {
    const std::string head = block(kZip64Extra, {});
    extra += head.substr(0, 2) + static_cast<char>(wide.size()) + '\0' + wide;
  }
  to.put(kCentralSignature, 4);
  to.put(20, 2);
  to.put(20, 2);
  to.put(record.flags, 2);
  to.put(record.method, 2);
  to.out.append(4, '\0');
  to.put(record.crc, 4);
  to.narrow(stored);
  to.narrow(size);
  to.put(record.name.size(), 2);
  to.put(extra.size(), 2);
  for (int i = 0; i < 3; ++i) to.put(0, 2);  // comment, disk, internal attributes
  to.put(0, 4);
  to.narrow(offset);
  to.out += record.name + extra;
}

void put_end(Writer& to, const ZipParts& zip, std::uint64_t start) {
  const std::uint64_t at = to.out.size();
  const std::uint64_t count = zip.records.size();
  if (zip.zip64) {
    to.put(kEnd64Signature, 4);
    to.put(kEnd64Bytes - 12, 8);
    to.put(0x2d001e, 4);
    to.put(0, 8);
    for (const std::uint64_t n : {count, count, at - start, start}) to.put(n, 8);
    to.put(kLocatorSignature, 4);
    to.put(0, 4);
    to.put(at, 8);
    to.put(1, 4);
  }
  const bool saturated = zip.zip64 && zip.saturated;
  to.put(kEndSignature, 4);
  to.put(0, 4);
  for (int i = 0; i < 2; ++i) to.put(saturated ? kSaturated16 : count, 2);
  to.narrow(saturated ? kSaturated32 : at - start);
  to.narrow(saturated ? kSaturated32 : start);
  to.put(zip.comment.size(), 2);
  to.out += zip.comment;
}

}  // namespace

std::uint32_t crc_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

bool ZipParts::take_apart(std::string_view archive) {
  const std::size_t end = archive.rfind("PK\5\6");
  if (end == std::string_view::npos || archive.size() - end < kEndBytes) return false;
  std::size_t at = number(archive, end + 16, 4);
  zip64 = end >= kLocatorBytes && number(archive, end - kLocatorBytes, 4) == kLocatorSignature;
  saturated = at == kSaturated32;
  if (saturated && zip64) at = number(archive, number(archive, end - kLocatorBytes + 8, 8) + 48, 8);
  comment = archive.substr(end + kEndBytes);
  while (records.size() < kMostRecords && at < end && number(archive, at, 4) == kCentralSignature) {
    ZipPart record;
    record.flags = static_cast<std::uint16_t>(number(archive, at + 8, 2));
    record.descriptor = (record.flags & kFlagDescriptor) != 0;
    record.method = static_cast<std::uint16_t>(number(archive, at + 10, 2));
    record.crc = static_cast<std::uint32_t>(number(archive, at + 16, 4));
    const std::size_t stored = number(archive, at + 20, 4);
    record.size = number(archive, at + 24, 4);
    record.no_crc = record.crc == 0 && record.size > 0;
    const std::size_t name = number(archive, at + 28, 2);
    const std::size_t extra = number(archive, at + 30, 2);
    const std::size_t text = std::min(at + kCentralBytes, archive.size());
    record.name = archive.substr(text, name);
    record.central_extra = other_blocks(archive.substr(std::min(text + name, archive.size()), extra));
    take_local(archive, number(archive, at + 42, 4), stored, record);
    records.push_back(std::move(record));
    at += kCentralBytes + name + extra + number(archive, at + 32, 2);
  }
  return !records.empty();
}

std::string ZipParts::put_together() {
  Writer to(fields);
  std::vector<std::uint64_t> places;
  for (ZipPart& record : records) {
    settle(record);
    to.out += record.gap;
    places.push_back(to.out.size());
    put_local(to, record);
  }
  const std::uint64_t start = to.out.size();
  for (std::size_t i = 0; i < records.size(); ++i) put_central(to, records[i], places[i]);
  put_end(to, *this, start);
  return std::move(to.out);
}

}  // namespace cairn::fuzz
