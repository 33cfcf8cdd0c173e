// Zip archives as torch.save writes them, read strictly and written in the same form.
//
// The reader accepts one archive that fills its source exactly: no gaps, no overlaps, no second
// directory, names under one top folder, local headers that agree with the central directory (or zeros
// with a data descriptor, which is what torch writes). Anything two zip readers could see differently is
// refused. See docs/format.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/sink.h"
#include "base/source.h"
#include "cairn/limits.h"

namespace cairn {

struct ZipEntry {
  std::string name;               // as stored, with the top folder: "archive/data/0"
  std::uint64_t data_offset = 0;  // of the first data byte, from the local header
  std::uint64_t size = 0;         // uncompressed
  std::uint64_t stored_size = 0;  // in the archive; == size unless deflated
  std::uint32_t crc = 0;          // 0 with size > 0: the writer did not compute it
  bool deflated = false;
};

struct ZipOptions {
  std::uint64_t max_entries = 1'000'000;
  bool allow_deflate = false;
  bool strict_crc = false;  // refuse entries whose CRC was not computed
};

class ZipReader {
 public:
  ZipReader(std::shared_ptr<const ByteSource> source, const ZipOptions& options, const Limits& limits = {});

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const std::string& top_folder() const { return top_folder_; }  // "archive", without the slash
  // By name without the top folder: "data/0". nullptr when absent.
  const ZipEntry* find(std::string_view name) const;
  const ByteSource& source() const { return *source_; }
  const std::shared_ptr<const ByteSource>& shared_source() const { return source_; }

  // The record's bytes, its CRC checked when there is one. Error kLimit above `max_bytes`.
  std::string read(const ZipEntry& entry, std::uint64_t max_bytes) const;
  // Reads the record in pieces and checks its CRC. Returns false if there is none to check against.
  bool verify(const ZipEntry& entry) const;

 private:
  std::shared_ptr<const ByteSource> source_;
  std::vector<ZipEntry> entries_;
  std::string top_folder_;
  std::vector<std::uint32_t> by_name_;  // positions in entries_, sorted by name
};

// Writes records one after another. Record data starts at a multiple of `alignment` (1 to 32768), counted
// from the archive's first byte. Misuse is Error(kInvalidArgument); after any error the archive is lost.
class ZipWriter {
 public:
  explicit ZipWriter(ByteSink& sink, std::string top_folder = "archive", std::uint64_t alignment = 64);

  void add(std::string_view name, ByteSpan bytes);
  // A record in pieces: its size is known ahead, its bytes follow. With `sum` false the bytes are not
  // summed as they pass, and end_with_crc() must close the record.
  void begin(std::string_view name, std::uint64_t size, bool sum = true);
  void append(ByteSpan bytes);
  // Bytes of a record that is not summed and that the caller puts where they belong himself.
  void skip(std::uint64_t bytes);
  void end();
  // The same with bytes whose CRC-32 the caller already knows (from a checksum made while staging).
  void end_with_crc(std::uint32_t crc);

  // Central directory and end records. Returns the archive's length.
  std::uint64_t finish();
  std::uint64_t position() const { return position_; }

 private:
  struct Record {
    std::string name;
    std::uint64_t header_offset, size;
    std::uint32_t crc;
  };
  enum class State { kBetween, kSumming, kNotSumming, kFinished };
  void emit(ByteSpan bytes);
  void put_local_header(const Record& record);
  void put_central_header(const Record& record);
  void put_end_records(std::uint64_t directory_offset);

  ByteSink& sink_;
  std::string top_folder_;
  std::uint64_t alignment_;
  std::uint64_t position_ = 0;
  std::vector<Record> records_;
  State state_ = State::kBetween;
  std::uint64_t remaining_ = 0;  // of the record being written
  std::uint32_t crc_ = 0;        // of its bytes so far
  std::string scratch_;          // headers are put together here
};

}  // namespace cairn
