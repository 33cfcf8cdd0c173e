#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "cairn/error.h"
#include "format/manifest.h"

namespace cairn {

ChecksumStream::ChecksumStream(bool strong, std::uint64_t block_size)
    : strong_(strong), block_size_(block_size) {
  if (!std::has_single_bit(block_size)) {
    throw Error(ErrorCode::kInvalidArgument, "the block size of checksums must be a power of two");
  }
}

void ChecksumStream::Sum::add(const Sum& next) {
  crc = length == 0 ? next.crc : (next.length == 0 ? crc : crc32_combine(crc, next.crc, next.length));
  length += next.length;
}

void ChecksumStream::begin_item() {
  if (in_item_) throw Error(ErrorCode::kInvalidArgument, "an item begins inside another");
  settle_piece();
  in_item_ = true;
  item_ = {};
  item_offset_ = file_.size;
}

void ChecksumStream::append(ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::uint64_t room = block_size_ - block_.length - piece_.length;
    const ByteSpan part = bytes.first(std::min<std::uint64_t>(bytes.size(), room));
    piece_.crc = crc32(part, piece_.crc);
    piece_.length += part.size();
    if (strong_) hash(part);
    file_.size += part.size();
    if (part.size() == room) close_block();
    bytes = bytes.subspan(part.size());
  }
}

std::uint32_t ChecksumStream::end_item() {
  if (!in_item_) throw Error(ErrorCode::kInvalidArgument, "there is no item to end");
  settle_piece();
  in_item_ = false;
  file_.items.push_back({item_offset_, item_.length, item_.crc});
  return item_.crc;
}

void ChecksumStream::begin_part() {
  settle_piece();
  part_ = {};
}

std::uint32_t ChecksumStream::end_part() {
  settle_piece();
  return part_.crc;
}

ManifestFile ChecksumStream::finish(std::string name) {
  if (in_item_) throw Error(ErrorCode::kInvalidArgument, "the file ends inside an item");
  if (block_.length + piece_.length > 0) close_block();
  file_.name = std::move(name);
  return std::move(file_);
}

void ChecksumStream::settle_piece() {
  block_.add(piece_);
  if (in_item_) item_.add(piece_);
  part_.add(piece_);
  piece_ = {};
}

void ChecksumStream::close_block() {
  settle_piece();
  file_.block_crcs.push_back(block_.crc);
  if (!pending_.empty()) {
    file_.block_hashes.push_back(xxh3_128(pending_));
    pending_.clear();
  }
  block_ = {};
}

// Hashes a block where it is if it came whole, else collects its parts.
void ChecksumStream::hash(ByteSpan part) {
  if (part.size() == block_size_) {
    file_.block_hashes.push_back(xxh3_128(part));
  } else {
    pending_.insert(pending_.end(), part.begin(), part.end());
  }
}

}  // namespace cairn
