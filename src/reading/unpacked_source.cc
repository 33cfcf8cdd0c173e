#include "reading/unpacked_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::size_t kEnd = 256U << 10;        // bytes that are kept of either end
constexpr std::size_t kPassedPiece = 1U << 20;  // bytes that are passed over at a time
constexpr int kMostStarts = 8;

}  // namespace

UnpackedSource::UnpackedSource(std::shared_ptr<const ByteSource> packed, Open open)
    : packed_(std::move(packed)), open_(std::move(open)), passed_over_(kPassedPiece) {
  find_ends();
}

void UnpackedSource::find_ends() {
  const std::unique_ptr<ItemDecoder> decoder = open_();
  for (std::size_t got = kPassedPiece; got == kPassedPiece; size_ += got) {
    got = decoder->read(passed_over_);
    const std::string_view piece = as_text(std::span(passed_over_).first(got));
    if (size_ == 0) head_ = piece.substr(0, kEnd);
    tail_.append(piece.substr(piece.size() - std::min(piece.size(), kEnd)));
    if (tail_.size() > kEnd) tail_.erase(0, tail_.size() - kEnd);
  }
}

void UnpackedSource::start_again() const {
  if (++starts_ > kMostStarts) {
    throw Error(ErrorCode::kLimit,
                "the compressed item cannot be read from front to back; a larger memory budget helps");
  }
  decoder_ = open_();
  position_ = 0;
  summed_ = sum_begin_;
  crc_ = 0;
}

void UnpackedSource::take(std::span<std::byte> to) const {
  if (decoder_->read(to) != to.size())
    throw Error(ErrorCode::kCorrupt, "the stream is shorter than it was a moment ago");
  const std::uint64_t begin = std::max(position_, summed_);
  const std::uint64_t end = std::min<std::uint64_t>(position_ + to.size(), sum_end_);
  if (begin < end) {
    crc_ = crc32(to.subspan(begin - position_, end - begin), crc_);
    summed_ = end;
  }
  position_ += to.size();
}

void UnpackedSource::skip_to(std::uint64_t offset) const {
  if (decoder_ == nullptr || offset < position_) start_again();
  while (position_ < offset)
    take(std::span(passed_over_).first(std::min<std::uint64_t>(offset - position_, kPassedPiece)));
}

void UnpackedSource::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset) {
    throw Error(ErrorCode::kCorrupt, fmt::format("{} bytes wanted of an item of {}", to.size(), size_))
        .in_file(name())
        .at(offset);
  }
  const std::uint64_t tail = size_ - tail_.size();
  if (offset + to.size() <= head_.size() || offset >= tail) {
    const char* from = offset >= tail ? tail_.data() + (offset - tail) : head_.data() + offset;
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return;
  }
  const std::lock_guard lock(mutex_);
  skip_to(offset);
  take(to);
}

void UnpackedSource::sum(std::uint64_t begin, std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  sum_begin_ = begin;
  sum_end_ = end;
  decoder_.reset();  // what has passed already is not in it
}

std::uint32_t UnpackedSource::finish_sum() const {
  const std::lock_guard lock(mutex_);
  skip_to(decoder_ == nullptr ? sum_end_ : std::max(position_, sum_end_));
  return crc_;
}

}  // namespace cairn
