#include "engine/staging_copy.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace cairn {
namespace {

// Large enough that a thread fills whole huge pages and the processor streams; small enough to share out.
constexpr std::uint64_t kPiece = 8U << 20;
constexpr std::uint64_t kInPassing = 1U << 20;  // not worth a thread

}  // namespace

StagingCopy::StagingCopy(const StagingLayout& layout, std::byte* memory, std::function<void()> finish)
    : finish_(std::move(finish)) {
  for (const StagedRun& run : layout.runs) cut(run, memory);
  views_.reserve(layout.gathered.size());  // pieces point into it
  for (const std::size_t i : layout.gathered) {
    views_.push_back(layout.tensors[i].live.view());
    cut(views_.back(), memory + layout.tensors[i].at);
  }
  group_pieces();
}

StagingCopy::~StagingCopy() {
  for (std::thread& thread : threads_) thread.join();
}

void StagingCopy::cut(const StagedRun& run, std::byte* memory) {
  for (std::uint64_t at = 0; at < run.bytes; at += kPiece) {
    Piece piece;
    piece.from = run.from + at;
    piece.to = memory + run.at + at;
    piece.bytes = std::min(kPiece, run.bytes - at);
    pieces_.push_back(piece);
  }
}

// By rows of the first dimension: a tensor to gather has at least one.
void StagingCopy::cut(const TensorView& tensor, std::byte* to) {
  const std::uint64_t row = tensor.bytes() / static_cast<std::uint64_t>(tensor.shape[0]);
  const auto rows = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPiece / row));
  for (std::int64_t at = 0; at < tensor.shape[0]; at += rows) {
    Piece piece;
    piece.gathered = &tensor;
    piece.first_row = at;
    piece.rows = std::min(rows, tensor.shape[0] - at);
    piece.to = to + static_cast<std::uint64_t>(at) * row;
    piece.bytes = static_cast<std::uint64_t>(piece.rows) * row;
    pieces_.push_back(piece);
  }
}

void StagingCopy::group_pieces() {
  std::uint64_t bytes = kPiece;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (bytes + pieces_[i].bytes > kPiece) {
      batches_.push_back(i);
      bytes = 0;
    }
    bytes += pieces_[i].bytes;
    bytes_ += pieces_[i].bytes;
  }
  if (batches_.empty()) batches_.push_back(0);  // nothing to copy is still to be finished
  unfinished_ = batches_.size();
  batches_.push_back(pieces_.size());
}

void StagingCopy::copy_batch(std::size_t batch) {
  for (std::size_t i = batches_[batch]; i < batches_[batch + 1]; ++i) {
    const Piece& piece = pieces_[i];
    if (piece.gathered == nullptr) {
      std::memcpy(piece.to, piece.from, piece.bytes);
    } else {
      Box rows = Box::whole(piece.gathered->shape);
      rows.offsets[0] = piece.first_row;
      rows.sizes[0] = piece.rows;
      copy(piece.gathered->narrow(rows), TensorView::contiguous(piece.to, piece.gathered->dtype, rows.sizes));
    }
    *copied_ += piece.bytes;
  }
}

// Whoever ends the last batch has all the others behind it.
void StagingCopy::end_batch() noexcept {
  if (unfinished_.fetch_sub(1) != 1) return;
  try {
    if (!failure_) finish_();
  } catch (...) {
    failure_ = std::current_exception();
  }
  finish_ = nullptr;  // and what it holds of the live state
  if (failure_) {
    promise_.set_exception(failure_);
  } else {
    promise_.set_value();
  }
}

void StagingCopy::work() noexcept {
  for (;;) {
    const std::size_t batch = next_++;
    if (batch + 1 >= batches_.size()) return;
    try {
      copy_batch(batch);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    end_batch();
  }
}

void StagingCopy::run(int threads, bool overlapped) {
  const std::size_t batches = batches_.size() - 1;
  const bool alone = batches == 1 && (!overlapped || bytes_ <= kInPassing);
  std::size_t extra = alone ? 0 : std::min(batches, static_cast<std::size_t>(threads));
  if (!overlapped && extra > 0) --extra;  // this thread copies, too
  try {
    threads_.reserve(extra);
    while (threads_.size() < extra) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // As many as there are; with none the copy is made here.
  }
  if (!overlapped || threads_.empty()) work();
  if (!overlapped) whole_.wait();
}

}  // namespace cairn
