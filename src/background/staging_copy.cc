#include "background/staging_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/parallel.h"

namespace cairn {
namespace {

// Large enough that a thread fills whole huge pages and the processor streams; small enough to share out.
constexpr std::uint64_t kCopiedPiece = 8U << 20;
constexpr std::uint64_t kInPassing = 1U << 20;  // not worth a thread

}  // namespace

StagingCopy::StagingCopy(StagingWork work, Step begin, Step finish, std::shared_ptr<DeviceLanes> lanes)
    : work_(std::move(work)),
      begin_(std::move(begin)),
      finish_(std::move(finish)),
      lanes_(std::move(lanes)) {}

StagingCopy::~StagingCopy() { conductor_.join(); }

void StagingCopy::cut_all() {
  const StagingLayout& layout = work_.layout;
  tasks_ = device_tasks(layout, work_.memory);
  const auto in_cpu = [&](std::size_t place) { return layout.places[place].device.is_cpu(); };
  for (const StagedRun& run : layout.runs)
    if (in_cpu(run.place)) cut(run, work_.memory[run.place].data);
  views_.reserve(layout.gathered.size());  // pieces point into it
  for (const std::size_t i : layout.gathered) {
    if (!in_cpu(layout.tensors[i].place)) continue;
    views_.push_back(layout.tensors[i].live.view());
    cut(views_.back(), work_.memory[layout.tensors[i].place].data + layout.tensors[i].at);
  }
  group_pieces();
}

void StagingCopy::cut(const StagedRun& run, std::byte* memory) {
  for (std::uint64_t at = 0; at < run.bytes; at += kCopiedPiece) {
    Stretch piece;
    piece.from = run.from + at;
    piece.to = memory + run.at + at;
    piece.bytes = std::min(kCopiedPiece, run.bytes - at);
    pieces_.push_back(piece);
  }
}

// By rows of the first dimension: a tensor to gather has at least one.
void StagingCopy::cut(const TensorView& tensor, std::byte* to) {
  const std::uint64_t row = tensor.bytes() / static_cast<std::uint64_t>(tensor.shape[0]);
  const auto rows = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kCopiedPiece / row));
  for (std::int64_t at = 0; at < tensor.shape[0]; at += rows) {
    Stretch piece;
    piece.gathered = &tensor;
    piece.first_row = at;
    piece.rows = std::min(rows, tensor.shape[0] - at);
    piece.to = to + static_cast<std::uint64_t>(at) * row;
    piece.bytes = static_cast<std::uint64_t>(piece.rows) * row;
    pieces_.push_back(piece);
  }
}

void StagingCopy::group_pieces() {
  std::uint64_t bytes = kCopiedPiece;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (bytes + pieces_[i].bytes > kCopiedPiece) {
      batches_.push_back(i);
      bytes = 0;
    }
    bytes += pieces_[i].bytes;
  }
  batches_.push_back(pieces_.size());
}

void StagingCopy::copy_batch(std::size_t batch) {
  for (std::size_t i = batches_[batch]; i < batches_[batch + 1]; ++i) {
    const Stretch& piece = pieces_[i];
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

void StagingCopy::take_jobs(DeviceCopier* copier) {
  const std::size_t jobs = tasks_.size() + batches_.size() - 1;
  while (!failed_) {
    const std::size_t job = next_++;
    if (job >= jobs) break;
    if (job < tasks_.size()) {
      *copied_ += copier->begin(tasks_[job]);
    } else {
      copy_batch(job - tasks_.size());
    }
  }
  if (copier != nullptr) *copied_ += copier->finish();
}

void StagingCopy::work() {
  try {
    if (tasks_.empty()) return take_jobs(nullptr);
    DeviceCopier copier(*lanes_);
    take_jobs(&copier);
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void StagingCopy::copy_all(int threads) {
  const std::size_t jobs = tasks_.size() + batches_.size() - 1;
  share_work(static_cast<int>(std::min(jobs, static_cast<std::size_t>(threads))), [this](int) { work(); });
}

void StagingCopy::pin_all(int threads) noexcept {
  try {
    for_each_in_parallel(unpinned_.size(), threads, [&](std::size_t i, int) {
      pin_cell(*unpinned_[i].block, unpinned_[i].cell, unpinned_[i].device, *lanes_);
    });
    lanes_->drop_rings();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next snapshot passes through the ring again
  }
  unpinned_.clear();
  lanes_ = nullptr;
}

void StagingCopy::conduct(int threads) noexcept {
  std::exception_ptr failure;
  try {
    begin_(work_);
    cut_all();
    copy_all(threads);
    finish_(work_);
    unpinned_ = unpinned_cells(tasks_, *lanes_);
  } catch (...) {
    failure = std::current_exception();
  }
  // And what they hold of the live state.
  tasks_.clear();
  begin_ = finish_ = nullptr;
  work_ = {};
  if (unpinned_.empty()) lanes_ = nullptr;
  if (failure) {
    promise_.set_exception(failure);
  } else {
    promise_.set_value();
  }
}

bool StagingCopy::is_little() const {
  return std::all_of(work_.layout.places.begin(), work_.layout.places.end(), [](const StagedPlace& place) {
    return place.device.is_cpu() && place.bytes <= kInPassing;
  });
}

void StagingCopy::run(int threads, bool overlapped) noexcept {
  const auto conduct_and_pin = [this, threads] {
    conduct(threads);
    if (!unpinned_.empty()) pin_all(threads);
  };
  if (overlapped && !is_little() && conductor_.add(conduct_and_pin)) return;
  conduct(threads);
  if (!unpinned_.empty() && !conductor_.add([this, threads] { pin_all(threads); })) unpinned_.clear();
}

}  // namespace cairn
