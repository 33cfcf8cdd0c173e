#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "base/hash.h"
#include "cairn/error.h"
#include "format/zip.h"

namespace cairn {
namespace {

constexpr std::uint64_t kPiece = 1 << 20;  // bytes in memory at a time

Error corrupt(const ZipEntry& entry, std::string message) {
  return Error(ErrorCode::kCorrupt, fmt::format("the record '{}' {}", entry.name, message))
      .at(entry.data_offset);
}

void check_crc(const ZipEntry& entry, std::uint32_t found) {
  if (found == entry.crc) return;
  throw corrupt(entry, fmt::format("has the checksum {:08x}, but should have {:08x}", found, entry.crc));
}

// Calls take(bytes) for the stored bytes, piece by piece.
template <class Take> void for_each_stored_piece(const ByteSource& source, const ZipEntry& entry, Take take) {
  const std::uint64_t piece = std::min(entry.stored_size, kPiece);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(piece);
  for (std::uint64_t done = 0; done < entry.stored_size;) {
    const std::uint64_t count = std::min(piece, entry.stored_size - done);
    source.read_at(entry.data_offset + done, {buffer.get(), count});
    take(ByteSpan(buffer.get(), count));
    done += count;
  }
}

// zlib's inflate for raw deflate data, which must end exactly with the input.
class Inflater {
 public:
  explicit Inflater(const ZipEntry& entry) : entry_(entry) {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw Error(ErrorCode::kInternal, "cannot start zlib");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  // Calls take(bytes) for what comes out, never for more than the record's size in all.
  template <class Take> void feed(ByteSpan in, Take take) {
    if (ended_) throw corrupt(entry_, "goes on after the end of its compressed data");
    // zlib only reads the input, but declares it without const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    do {
      std::byte out[16 << 10];
      stream_.next_out = reinterpret_cast<Bytef*>(out);
      stream_.avail_out = sizeof(out);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        throw corrupt(entry_, "is not valid deflate data");
      }
      const std::size_t count = sizeof(out) - stream_.avail_out;
      produced_ += count;
      if (produced_ > entry_.size) throw corrupt(entry_, "expands to more than its declared size");
      take(ByteSpan(out, count));
      ended_ = status == Z_STREAM_END;
    } while (!ended_ && stream_.avail_out == 0);
    if (stream_.avail_in != 0) throw corrupt(entry_, "goes on after the end of its compressed data");
  }

  void finish() const {
    if (!ended_) throw corrupt(entry_, "ends before its compressed data does");
    if (produced_ != entry_.size) throw corrupt(entry_, "expands to less than its declared size");
  }

 private:
  const ZipEntry& entry_;
  z_stream stream_{};
  std::uint64_t produced_ = 0;
  bool ended_ = false;
};

// Calls take(bytes) for the uncompressed bytes, piece by piece.
template <class Take> void for_each_piece(const ByteSource& source, const ZipEntry& entry, Take take) {
  if (!entry.deflated) return for_each_stored_piece(source, entry, take);
  Inflater inflater(entry);
  for_each_stored_piece(source, entry, [&](ByteSpan bytes) { inflater.feed(bytes, take); });
  inflater.finish();
}

}  // namespace

std::string ZipReader::read(const ZipEntry& entry, std::uint64_t max_bytes) const {
  if (entry.size > max_bytes) {
    throw Error(ErrorCode::kLimit, fmt::format("the record '{}' has {} bytes, more than the {} allowed",
                                               entry.name, entry.size, max_bytes))
        .at(entry.data_offset);
  }
  std::string bytes;
  if (entry.deflated) {
    // Grows with what really comes out, whatever size is declared.
    for_each_piece(*source_, entry, [&](ByteSpan piece) { bytes.append(as_text(piece)); });
  } else {
    bytes.resize(entry.size);
    source_->read_at(entry.data_offset, std::as_writable_bytes(std::span(bytes)));
  }
  if (entry.crc != 0 || entry.size == 0) check_crc(entry, crc32(as_bytes(bytes)));
  return bytes;
}

bool ZipReader::verify(const ZipEntry& entry) const {
  if (entry.crc == 0 && entry.size > 0) return false;
  std::uint32_t crc = 0;
  for_each_piece(*source_, entry, [&](ByteSpan piece) { crc = crc32(piece, crc); });
  check_crc(entry, crc);
  return true;
}

}  // namespace cairn
