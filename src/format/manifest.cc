#include "format/manifest.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "cairn/error.h"
#include "format/names.h"
#include "format/safetensors.h"

namespace cairn {
namespace {

constexpr std::string_view kMagic = "CAIRNMF\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kFlagStrong = 1;
constexpr std::uint32_t kFileTag = 0x454c4946;  // "FILE"
constexpr std::uint32_t kEndTag = 0x20444e45;   // "END "
constexpr std::size_t kHeaderBytes = 40;
constexpr std::size_t kFileBytes = 24;  // of a section before its name
constexpr std::size_t kItemBytes = 20;
constexpr std::size_t kEndBytes = 40;
constexpr std::uint64_t kMostBlock = 1 << 30;

std::uint64_t count_blocks(std::uint64_t size, std::uint64_t block_size) {
  return size / block_size + (size % block_size != 0 ? 1 : 0);
}

bool is_block_size(std::uint64_t size) { return std::has_single_bit(size) && size <= kMostBlock; }

// Items must lie in order and inside the file. Returns the first that does not; nullptr when all do.
const ManifestItem* find_misplaced(const ManifestFile& file) {
  std::uint64_t end = 0;
  for (const ManifestItem& item : file.items) {
    if (item.offset < end || item.offset > file.size || item.length > file.size - item.offset) return &item;
    end = item.offset + item.length;
  }
  return nullptr;
}

Error manifest_misuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

// Reads a manifest in memory from front to back. Offsets of errors are those of the file.
class Parser {
 public:
  explicit Parser(ByteSpan bytes) : bytes_(bytes) {}

  Manifest parse();

 private:
  [[noreturn]] void fail(std::string message) const {
    throw Error(ErrorCode::kCorrupt, std::move(message)).at(at_);
  }
  // The next bytes, which must lie before the end record.
  const std::byte* take(std::uint64_t count) {
    if (count > end_ - at_) fail("the manifest ends inside a section");
    const std::byte* p = bytes_.data() + at_;
    at_ += count;
    return p;
  }
  // The next `count` records of `bytes` each: counted against what is there before anything is multiplied.
  const std::byte* take_list(std::uint64_t count, std::uint64_t bytes) {
    if (count > (end_ - at_) / bytes) fail("the manifest ends inside a section");
    return take(count * bytes);
  }
  void check_end();
  void parse_header(Manifest& manifest);
  ManifestFile parse_file(const Manifest& manifest);
  void parse_end(const Manifest& manifest);

  ByteSpan bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t end_ = 0;  // where the end record starts
  std::uint64_t items_ = 0;
  std::uint64_t blocks_ = 0;
};

Manifest Parser::parse() {
  check_end();
  Manifest manifest;
  parse_header(manifest);
  while (at_ < end_) manifest.files.push_back(parse_file(manifest));
  parse_end(manifest);
  const auto name_at = [&](std::size_t i) { return std::string_view(manifest.files[i].name); };
  if (const auto twice = find_duplicate(manifest.files.size(), name_at)) {
    fail(fmt::format("the manifest has the file '{}' twice", name_at(*twice)));
  }
  return manifest;
}

// The checksum comes first: nothing else is believed, or reported, of a manifest that has changed.
void Parser::check_end() {
  if (bytes_.size() < kHeaderBytes + kEndBytes)
    fail(fmt::format("{} bytes are too few for a manifest", bytes_.size()));
  if (as_text(bytes_.first(kMagic.size())) != kMagic) fail("this is not a manifest");
  end_ = bytes_.size() - kEndBytes;
  const std::byte* end = bytes_.data() + end_;
  if (load<std::uint32_t>(end) != kEndTag || load<std::uint64_t>(end + 28) != bytes_.size()) {
    at_ = end_;
    fail("the manifest is cut off, or something follows it: there is no end record here");
  }
  const std::uint32_t found = crc32c(bytes_.first(bytes_.size() - 4));
  if (found != load<std::uint32_t>(end + 36)) fail("the manifest has changed: its checksum is wrong");
}

void Parser::parse_header(Manifest& manifest) {
  const std::byte* p = take(kHeaderBytes);
  const std::uint32_t version = load<std::uint32_t>(p + 8);
  const std::uint32_t flags = load<std::uint32_t>(p + 12);
  if (version != kVersion || (flags & ~kFlagStrong) != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the manifest has version {} and flags {:#x}; version {} is the one we know",
                            version, flags, kVersion));
  }
  std::memcpy(manifest.save_id.data(), p + 16, manifest.save_id.size());
  manifest.block_size = load<std::uint64_t>(p + 32);
  manifest.strong = (flags & kFlagStrong) != 0;
  if (!is_block_size(manifest.block_size))
    fail(fmt::format("the block size {} is not possible", manifest.block_size));
}

ManifestFile Parser::parse_file(const Manifest& manifest) {
  const std::byte* p = take(kFileBytes);
  if (load<std::uint32_t>(p) != kFileTag) fail("there is no file section here");
  const std::uint32_t name_bytes = load<std::uint32_t>(p + 4);
  const std::uint64_t item_count = load<std::uint64_t>(p + 16);
  ManifestFile file;
  file.size = load<std::uint64_t>(p + 8);
  const std::uint64_t block_count = count_blocks(file.size, manifest.block_size);
  file.name = as_text({take(name_bytes), name_bytes});
  check_relative_path(file.name, Limits());
  if (!is_utf8(file.name)) fail("the name of a file is not UTF-8");

  // The bytes of each list are taken before memory is.
  const std::byte* crcs = take_list(block_count, 4);
  file.block_crcs.resize(block_count);
  if (block_count > 0) std::memcpy(file.block_crcs.data(), crcs, block_count * 4);
  if (manifest.strong) {
    const std::byte* hashes = take_list(block_count, sizeof(StrongHash));
    file.block_hashes.resize(block_count);
    if (block_count > 0) std::memcpy(file.block_hashes.data(), hashes, block_count * sizeof(StrongHash));
  }
  const std::byte* items = take_list(item_count, kItemBytes);
  file.items.resize(item_count);
  for (ManifestItem& item : file.items) {
    item = {load<std::uint64_t>(items), load<std::uint64_t>(items + 8), load<std::uint32_t>(items + 16)};
    items += kItemBytes;
  }
  if (const ManifestItem* item = find_misplaced(file)) {
    fail(fmt::format("an item of '{}' at byte {} overlaps another or runs past the end", file.name,
                     item->offset));
  }
  items_ += item_count;
  blocks_ += block_count;
  return file;
}

void Parser::parse_end(const Manifest& manifest) {
  const std::byte* end = bytes_.data() + end_;
  if (load<std::uint64_t>(end + 4) != manifest.files.size() || load<std::uint64_t>(end + 12) != items_ ||
      load<std::uint64_t>(end + 20) != blocks_) {
    fail("the end record counts other files, items or blocks than there are");
  }
}

}  // namespace

ManifestWriter::ManifestWriter(ByteSink& sink, const SaveId& save_id, bool strong, std::uint64_t block_size)
    : sink_(sink), strong_(strong), block_size_(block_size) {
  if (!is_block_size(block_size))
    throw manifest_misuse(fmt::format("a manifest cannot have blocks of {} bytes", block_size));
  std::string header(kMagic);
  put(header, kVersion);
  put(header, strong ? kFlagStrong : std::uint32_t{0});
  header += as_text(save_id);
  put(header, block_size);
  emit(as_bytes(header));
}

void ManifestWriter::add(const ManifestFile& file) {
  if (finished_) throw manifest_misuse("the manifest is finished");
  try {
    check_relative_path(file.name, Limits());
  } catch (const Error& e) {
    throw manifest_misuse(e.message());
  }
  const std::uint64_t blocks = count_blocks(file.size, block_size_);
  if (file.block_crcs.size() != blocks || file.block_hashes.size() != (strong_ ? blocks : 0)) {
    throw manifest_misuse(fmt::format("'{}' has {} blocks, but {} checksums and {} hashes", file.name, blocks,
                                      file.block_crcs.size(), file.block_hashes.size()));
  }
  if (find_misplaced(file) != nullptr)
    throw manifest_misuse(fmt::format("the items of '{}' overlap or lie outside", file.name));
  std::string section;
  section.reserve(kFileBytes + file.name.size() + blocks * (strong_ ? 20 : 4) +
                  file.items.size() * kItemBytes);
  put(section, kFileTag);
  put(section, static_cast<std::uint32_t>(file.name.size()));
  put(section, file.size);
  put(section, static_cast<std::uint64_t>(file.items.size()));
  section += file.name;
  section += as_text(std::as_bytes(std::span(file.block_crcs)));
  for (const StrongHash& hash : file.block_hashes) section += as_text(hash);
  for (const ManifestItem& item : file.items) {
    put(section, item.offset);
    put(section, item.length);
    put(section, item.crc);
  }
  emit(as_bytes(section));
  names_.push_back(file.name);
  items_ += file.items.size();
  blocks_ += blocks;
}

void ManifestWriter::finish() {
  if (std::exchange(finished_, true)) throw manifest_misuse("the manifest is finished");
  const auto name_at = [&](std::size_t i) { return std::string_view(names_[i]); };
  if (const auto twice = find_duplicate(names_.size(), name_at)) {
    throw manifest_misuse(fmt::format("the manifest has the file '{}' twice", name_at(*twice)));
  }
  std::string end;
  put(end, kEndTag);
  put(end, static_cast<std::uint64_t>(names_.size()));
  put(end, items_);
  put(end, blocks_);
  put(end, length_ + kEndBytes);
  emit(as_bytes(end));
  std::string sum;
  put(sum, crc_);
  emit(as_bytes(sum));
}

void ManifestWriter::emit(ByteSpan bytes) {
  sink_.append(bytes);
  crc_ = crc32c(bytes, crc_);
  length_ += bytes.size();
}

Manifest read_manifest(const ByteSource& source, const Limits& limits) {
  if (source.size() > limits.manifest_bytes) {
    throw Error(ErrorCode::kLimit, fmt::format("the manifest has {} bytes, more than the {} allowed",
                                               source.size(), limits.manifest_bytes));
  }
  const std::string bytes = read_all(source);
  return Parser(as_bytes(bytes)).parse();
}

std::string encode_manifest(const SaveId& save_id, bool strong, const std::vector<ManifestFile>& files) {
  StringSink sink;
  ManifestWriter writer(sink, save_id, strong);
  for (const ManifestFile& file : files) writer.add(file);
  writer.finish();
  return std::move(sink.text);
}

}  // namespace cairn
