#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/utf8.h"
#include "format/names.h"
#include "format/zip.h"
#include "format/zip_directory.h"
#include "format/zip_format.h"

namespace cairn {

const char* zip::find_name_problem(std::string_view name) {
  if (const char* problem = find_path_problem(name)) return problem;
  if (name.find('\\') != std::string_view::npos) return "it contains a backslash";
  if (name.find('/') == std::string_view::npos) return "it is not inside a folder";
  if (!is_utf8(name)) return "it is not UTF-8";
  return nullptr;
}

namespace {

using namespace zip;

// Archives up to this size are read whole, by one read; it is also how a larger one's directory is read.
constexpr std::uint64_t kDirectoryPiece = 64 << 10;
// What is read of a larger archive's end at first: it holds all that torch writes behind a single tensor.
constexpr std::uint64_t kTailPiece = 4 << 10;
// Local headers are read in pieces of this size: one holds the descriptor of a record, the header of the
// next, and the padding that torch puts there.
constexpr std::uint64_t kHeaderPiece = 4 << 10;

// Goes through directory and local headers side by side: each record must start where the one before
// ends, so together they tile the archive.
class ArchiveParser {
 public:
  ArchiveParser(const ByteSource& source, const ZipOptions& options, const Limits& limits)
      : options_(options),
        limits_(limits),
        size_(source.size()),
        back_(source, kDirectoryPiece),
        front_(source, kHeaderPiece) {}

  // Fills in `top_folder` too.
  std::vector<ZipEntry> parse(std::string& top_folder);

 private:
  Directory find_directory();
  void check_kind(const Central& central, std::uint64_t offset) const;
  void check_name(const Central& central, std::uint64_t offset, std::string& top_folder) const;
  std::uint64_t check_local(const Central& central, std::uint64_t limit, std::uint64_t& data_offset);
  void check_descriptor(const Central& central, std::uint64_t offset, bool wide);
  // Small archives lie in `back_` as a whole.
  Window& front() { return size_ <= kDirectoryPiece ? back_ : front_; }

  const ZipOptions& options_;
  const Limits& limits_;
  std::uint64_t size_;
  Window back_;
  Window front_;
};

std::vector<ZipEntry> ArchiveParser::parse(std::string& top_folder) {
  const Directory directory = find_directory();
  std::vector<ZipEntry> entries(directory.entries);
  std::uint64_t at = directory.offset;
  std::uint64_t end = 0;  // of the record before
  for (ZipEntry& entry : entries) {
    const Central central = read_central(back_, at, directory.end(), limits_);
    check_kind(central, at);
    check_name(central, at, top_folder);
    if (central.header_offset != end) {
      throw corrupt(at, fmt::format("the record '{}' starts at byte {}, but the one before ends at byte {}",
                                    central.name, central.header_offset, end));
    }
    entry.name = central.name;
    entry.size = central.size;
    entry.stored_size = central.stored_size;
    entry.crc = central.crc;
    entry.deflated = central.method == kDeflated;
    end = check_local(central, directory.offset, entry.data_offset);
    at += central.bytes;
  }
  if (at != directory.end()) {
    throw corrupt(at, fmt::format("the directory goes on after its {} records", directory.entries));
  }
  if (end != directory.offset) {
    throw corrupt(
        end, fmt::format("the last record ends here, but the directory starts at byte {}", directory.offset));
  }
  return entries;
}

Directory ArchiveParser::find_directory() {
  const std::uint64_t tail = size_ <= kDirectoryPiece ? size_ : kTailPiece;
  back_.at(size_ - tail, tail);
  const Directory directory = read_end(back_, size_);
  if (directory.entries == 0) throw corrupt(directory.offset, "the archive has no records");
  if (directory.entries > directory.size / kCentralBytes) {
    throw corrupt(directory.offset, fmt::format("a directory of {} bytes cannot hold {} records",
                                                directory.size, directory.entries));
  }
  if (directory.entries > options_.max_entries) {
    throw Error(ErrorCode::kLimit, fmt::format("the archive has {} records, more than the {} allowed",
                                               directory.entries, options_.max_entries));
  }
  return directory;
}

void ArchiveParser::check_kind(const Central& central, std::uint64_t offset) const {
  const bool deflated = central.method == kDeflated;
  if (central.method != kStored && !(deflated && options_.allow_deflate)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the record '{}' is {} (method {})", central.name,
                            deflated ? "compressed" : "compressed in an unknown way", central.method))
        .at(offset);
  }
  const unsigned known = kFlagDescriptor | kFlagUtf8 | (deflated ? kFlagDeflateOptions : 0U);
  if ((central.flags & ~known) != 0) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("the record '{}' is encrypted or has other features we do not know (flags {:#06x})",
                    central.name, central.flags))
        .at(offset);
  }
  if (!deflated && central.size != central.stored_size) {
    throw corrupt(offset, fmt::format("the record '{}' is stored as it is, but its sizes {} and {} differ",
                                      central.name, central.stored_size, central.size));
  }
  const std::uint64_t ratio = std::max<std::uint64_t>(limits_.deflate_ratio, 1);
  if (deflated && central.size > 0 && (central.size - 1) / ratio >= central.stored_size) {
    throw Error(ErrorCode::kLimit,
                fmt::format("the record '{}' claims to expand from {} to {} bytes, more than {} "
                            "times",
                            central.name, central.stored_size, central.size, ratio))
        .at(offset);
  }
  if (central.size == 0 && central.crc != 0) {
    throw corrupt(offset, fmt::format("the record '{}' is empty, but its checksum is not 0", central.name));
  }
  if (options_.strict_crc && central.size > 0 && central.crc == 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the record '{}' has no checksum, and one is asked for", central.name))
        .at(offset);
  }
}

void ArchiveParser::check_name(const Central& central, std::uint64_t offset, std::string& top_folder) const {
  const std::string_view name = central.name;
  if (const char* problem = find_name_problem(name)) {
    throw corrupt(offset, fmt::format("the record name '{}' is refused: {}", name, problem));
  }
  const auto beyond_ascii = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  if ((central.flags & kFlagUtf8) == 0 && std::any_of(name.begin(), name.end(), beyond_ascii)) {
    throw corrupt(offset, fmt::format("the record name '{}' is not ASCII and not marked as UTF-8", name));
  }
  const std::string_view folder = name.substr(0, name.find('/'));
  if (top_folder.empty()) top_folder = folder;
  if (folder != top_folder) {
    throw corrupt(offset,
                  fmt::format("the record '{}' is outside the folder '{}' of the others", name, top_folder));
  }
}

// What the local header says of the record's size, in 32 bits or in a zip64 block. Each number must be the
// directory's, or 0 if a descriptor is to follow. Returns whether there is a zip64 block.
//
// torch leaves the 32-bit sizes at 0 even where it adds a zip64 block, and gives that block the header's
// offset, alone or after the sizes: the block's length tells what is in it.
bool check_local_sizes(const Central& central, const std::byte* local, ByteSpan zip64) {
  const auto agrees = [&](std::uint64_t said, std::uint64_t real) {
    return said == real || (said == 0 && central.has_descriptor());
  };
  const std::uint32_t stored = load<std::uint32_t>(local + 18);
  const std::uint32_t size = load<std::uint32_t>(local + 22);
  const bool has_sizes = zip64.size() == 16 || zip64.size() == 24;
  const bool has_offset = zip64.size() == 8 || zip64.size() == 24;
  const bool stored_is_wide = has_sizes && stored == kSaturated32;
  const bool size_is_wide = has_sizes && size == kSaturated32;
  bool fine = agrees(load<std::uint32_t>(local + 14), central.crc);
  fine = fine && (stored_is_wide || agrees(stored, central.stored_size));
  fine = fine && (size_is_wide || agrees(size, central.size));
  if (has_sizes) {
    fine = fine && agrees(load<std::uint64_t>(zip64.data()), central.size) &&
           agrees(load<std::uint64_t>(zip64.data() + 8), central.stored_size);
  }
  if (has_offset) {
    fine = fine && load<std::uint64_t>(zip64.data() + zip64.size() - 8) == central.header_offset;
  }
  fine = fine && (zip64.empty() || has_sizes || has_offset);
  if (!fine) {
    throw corrupt(central.header_offset,
                  fmt::format("size or checksum of '{}' here is not the directory's", central.name));
  }
  return !zip64.empty();
}

// Checks the local header and what follows the data; returns where the record ends, at most `limit`.
std::uint64_t ArchiveParser::check_local(const Central& central, std::uint64_t limit,
                                         std::uint64_t& data_offset) {
  const std::uint64_t at = central.header_offset;
  const std::size_t name_bytes = central.name.size();
  const std::byte* p = front().at(at, kLocalBytes + name_bytes);
  if (load<std::uint32_t>(p) != kLocalSignature) throw corrupt(at, "there is no local header here");
  if (load<std::uint16_t>(p + 6) != central.flags || load<std::uint16_t>(p + 8) != central.method ||
      load<std::uint16_t>(p + 26) != name_bytes || as_text({p + kLocalBytes, name_bytes}) != central.name) {
    throw corrupt(at, fmt::format("the local header of '{}' is not the directory's in name, flags or method",
                                  central.name));
  }
  const std::size_t extra_bytes = load<std::uint16_t>(p + 28);
  const std::uint64_t header_bytes = kLocalBytes + name_bytes + extra_bytes;
  p = front().at(at, header_bytes);
  const ByteSpan zip64 =
      find_zip64({p + kLocalBytes + name_bytes, extra_bytes}, at + kLocalBytes + name_bytes);
  const bool wide = check_local_sizes(central, p, zip64);
  data_offset = at + header_bytes;
  const std::uint64_t descriptor_bytes =
      !central.has_descriptor() ? 0 : (wide ? kDescriptor64Bytes : kDescriptorBytes);
  if (data_offset + descriptor_bytes > limit ||
      central.stored_size > limit - data_offset - descriptor_bytes) {
    throw corrupt(at, fmt::format("the record '{}' of {} bytes runs into the directory", central.name,
                                  central.stored_size));
  }
  const std::uint64_t data_end = data_offset + central.stored_size;
  if (central.has_descriptor()) check_descriptor(central, data_end, wide);
  return data_end + descriptor_bytes;
}

void ArchiveParser::check_descriptor(const Central& central, std::uint64_t offset, bool wide) {
  const std::byte* p = front().at(offset, wide ? kDescriptor64Bytes : kDescriptorBytes);
  const std::uint64_t stored = wide ? load<std::uint64_t>(p + 8) : load<std::uint32_t>(p + 8);
  const std::uint64_t size = wide ? load<std::uint64_t>(p + 16) : load<std::uint32_t>(p + 12);
  if (load<std::uint32_t>(p) != kDescriptorSignature || load<std::uint32_t>(p + 4) != central.crc ||
      stored != central.stored_size || size != central.size) {
    throw corrupt(offset, fmt::format("the data descriptor of '{}' is missing or not as the directory says",
                                      central.name));
  }
}

}  // namespace

ZipReader::ZipReader(std::shared_ptr<const ByteSource> source, const ZipOptions& options,
                     const Limits& limits)
    : source_(std::move(source)) {
  entries_ = ArchiveParser(*source_, options, limits).parse(top_folder_);
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  const auto name_less = [&](std::uint32_t a, std::uint32_t b) {
    return entries_[a].name < entries_[b].name;
  };
  std::sort(by_name_.begin(), by_name_.end(), name_less);
  const auto name_equal = [&](std::uint32_t a, std::uint32_t b) {
    return entries_[a].name == entries_[b].name;
  };
  const auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(), name_equal);
  if (twice != by_name_.end()) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the archive has two records '{}'", entries_[*twice].name));
  }
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const std::size_t folder = top_folder_.size() + 1;  // every name starts with it
  const auto less = [&](std::uint32_t i, std::string_view wanted) {
    return std::string_view(entries_[i].name).substr(folder) < wanted;
  };
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name, less);
  if (found == by_name_.end()) return nullptr;
  const ZipEntry& entry = entries_[*found];
  return std::string_view(entry.name).substr(folder) == name ? &entry : nullptr;
}

}  // namespace cairn
