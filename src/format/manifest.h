// The manifest: cairn's side file with the checksums of a checkpoint's data files.
//
// It says which save wrote the files, how large each one is, a CRC-32 per 1 MiB block and per item, and,
// if asked for, an XXH3-128 per block. PyTorch ignores it. Written as a stream: a header, one section per
// file, an end record with the checksum of everything before it. Byte layout in docs/format.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sink.h"
#include "base/source.h"
#include "cairn/limits.h"
#include "cairn/metadata.h"

namespace cairn {

inline constexpr std::uint64_t kManifestBlock = 1ULL << 20;

using StrongHash = std::array<std::byte, 16>;

struct ManifestItem {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t crc = 0;
  bool operator==(const ManifestItem&) const = default;
};

struct ManifestFile {
  std::string name;
  std::uint64_t size = 0;
  std::vector<std::uint32_t> block_crcs;  // ceil(size / block) of them
  std::vector<StrongHash> block_hashes;   // the same number, or none
  std::vector<ManifestItem> items;        // by offset, not overlapping, inside the file
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  SaveId save_id{};
  std::uint64_t block_size = kManifestBlock;
  bool strong = false;  // block_hashes are there
  std::vector<ManifestFile> files;
  bool operator==(const Manifest&) const = default;
};

// Writes a manifest file by file. Misuse is Error(kInvalidArgument).
class ManifestWriter {
 public:
  // `block_size` is a power of two, at most 1 GiB.
  ManifestWriter(ByteSink& sink, const SaveId& save_id, bool strong = false,
                 std::uint64_t block_size = kManifestBlock);
  void add(const ManifestFile& file);
  void finish();

 private:
  void emit(ByteSpan bytes);

  ByteSink& sink_;
  bool strong_;
  std::uint64_t block_size_;
  std::vector<std::string> names_;
  std::uint64_t items_ = 0;
  std::uint64_t blocks_ = 0;
  std::uint64_t length_ = 0;  // bytes written
  std::uint32_t crc_ = 0;     // CRC-32C of them
  bool finished_ = false;
};

// A whole manifest as bytes.
std::string encode_manifest(const SaveId& save_id, bool strong, const std::vector<ManifestFile>& files);

// Error kCorrupt for anything that was not written by ManifestWriter or has changed since, kUnsupported
// for a whole manifest of a later version.
Manifest read_manifest(const ByteSource& source, const Limits& limits = {});

// Checksums of one data file, made while its bytes pass once, in order. The CRC of an item comes from
// the same pass: pieces are summed once and combined. Bytes outside items (padding) are in blocks only.
class ChecksumStream {
 public:
  explicit ChecksumStream(bool strong = false, std::uint64_t block_size = kManifestBlock);
  void begin_item();  // the next bytes belong to a new item
  void append(ByteSpan bytes);
  std::uint32_t end_item();  // returns the item's CRC-32
  // A part of the file of which only the caller wants the sum: the data record of an archive.
  void begin_part();
  std::uint32_t end_part();  // returns the part's CRC-32
  std::uint64_t position() const { return file_.size; }
  // Call at most once, last.
  ManifestFile finish(std::string name);

 private:
  // CRC-32 of a run of bytes that grows at its end.
  struct Sum {
    std::uint32_t crc = 0;
    std::uint64_t length = 0;
    void add(const Sum& next);
  };
  void settle_piece();
  void close_block();
  void hash(ByteSpan bytes);

  bool strong_;
  std::uint64_t block_size_;
  ManifestFile file_;
  bool in_item_ = false;
  std::uint64_t item_offset_ = 0;
  // The current block, item and part, less the last piece, which belongs to all and is not yet added to any.
  Sum block_;
  Sum item_;
  Sum part_;
  Sum piece_;
  std::vector<std::byte> pending_;  // strong: the bytes of a block that came in parts
};

}  // namespace cairn
