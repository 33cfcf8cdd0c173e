#include "background/staging_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/large_block.h"
#include "cairn/error.h"

namespace cairn {
namespace {

// A block is used again for what fills at least half of it; small ones for anything small.
bool suits(std::uint64_t block, std::uint64_t bytes) {
  return block >= bytes && (block <= 2 * bytes || block <= kLargeBlock);
}

std::byte* map_block(std::uint64_t bytes) {
  try {
    return static_cast<std::byte*>(resize_block(nullptr, 0, bytes));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kLimit, fmt::format("the system has no {} bytes for a snapshot", bytes))
        .while_doing("staging");
  }
}

}  // namespace

SnapshotBlock::SnapshotBlock(std::uint64_t bytes)
    : bytes_(bytes), data_(map_block(bytes)), pinned_((bytes + kCell - 1) / kCell, 0) {}

SnapshotBlock::~SnapshotBlock() {
  for (std::size_t cell = 0; cell < cells(); ++cell)
    if (is_pinned(cell)) driver_->unpin(device_, data_ + cell * kCell);
  free_block(data_, bytes_);
}

std::uint64_t SnapshotBlock::length_of(std::size_t cell) const {
  return std::min(kCell, bytes_ - cell * kCell);
}

void SnapshotBlock::populate(std::size_t cell) { cairn::populate(data_ + cell * kCell, length_of(cell)); }

bool SnapshotBlock::pin(std::size_t cell, const std::shared_ptr<DeviceDriver>& driver, int device) {
  if (is_pinned(cell)) return true;
  {
    const std::lock_guard lock(mutex_);
    if (driver_ == nullptr) {
      driver_ = driver;
      device_ = device;
    }
  }
  populate(cell);
  if (!driver->pin(device, data_ + cell * kCell, length_of(cell))) return false;
  pinned_[cell] = 1;
  return true;
}

StagingMemory::StagingMemory(std::uint64_t budget)
    : budget_(budget > 0 ? budget : std::numeric_limits<std::uint64_t>::max()) {}

StagingMemory::~StagingMemory() { trim(); }

void StagingMemory::free_kept(std::size_t index) {
  kept_bytes_ -= kept_[index]->bytes();
  kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(index));
  --blocks_;
}

void StagingMemory::trim() {
  const std::lock_guard lock(mutex_);
  keeps_ = false;
  while (!kept_.empty()) free_kept(kept_.size() - 1);
}

bool StagingMemory::reuse(std::uint64_t bytes, Block& block) {
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    if (!suits(kept_[i]->bytes(), bytes)) continue;
    block = std::move(kept_[i]);
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    kept_bytes_ -= block->bytes();
    held_bytes_ += block->bytes();
    return true;
  }
  return false;
}

// Kept blocks that are too small make way for the new one: the state has grown, they will not be wanted
// again.
bool StagingMemory::make_room(std::uint64_t bytes) {
  if (held_bytes_ > budget_ || bytes > budget_ - held_bytes_) return false;
  for (std::size_t i = kept_.size(); i-- > 0;)
    if (kept_[i]->bytes() < bytes) free_kept(i);
  while (!kept_.empty() && kept_bytes_ > budget_ - held_bytes_ - bytes) free_kept(kept_.size() - 1);
  return true;
}

void StagingMemory::wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, Time deadline) {
  const bool may_wait = deadline > std::chrono::steady_clock::now();
  const auto fits = [&] { return bytes <= budget_ && held_bytes_ <= budget_ - bytes; };
  if (fits()) return;
  if (may_wait && bytes <= budget_) {
    if (deadline == Time::max()) return changed_.wait(lock, fits);
    if (changed_.wait_until(lock, deadline, fits)) return;
    throw Error(ErrorCode::kTimeout,
                fmt::format("the snapshot needs {} bytes, and older ones still hold {} of the budget of {}",
                            bytes, held_bytes_, budget_))
        .while_doing("staging");
  }
  throw Error(ErrorCode::kLimit,
              fmt::format("the snapshot needs {} bytes, and the budget is {}, of which older ones hold {}: "
                          "raise the budget, or let the save write through",
                          bytes, budget_, held_bytes_))
      .while_doing("staging");
}

std::shared_ptr<SnapshotBlock> StagingMemory::take(std::uint64_t bytes, Time deadline) {
  bytes = std::max<std::uint64_t>(bytes, kLargeBlock);  // less would not be aligned
  Block block;
  {
    std::unique_lock lock(mutex_);
    keeps_ = true;
    for (;;) {
      if (reuse(bytes, block)) break;
      wait_for_room(lock, bytes, deadline);
      if (reuse(bytes, block)) break;
      if (!make_room(bytes)) continue;
      kept_.reserve(blocks_ + 1);
      block = std::make_unique<SnapshotBlock>(bytes);
      ++blocks_;
      held_bytes_ += bytes;
      break;
    }
  }
  SnapshotBlock* const taken = block.release();
  return {taken, [self = shared_from_this()](SnapshotBlock* one) { self->give_back(Block(one)); }};
}

void StagingMemory::give_back(Block block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    held_bytes_ -= block->bytes();
    kept_bytes_ += block->bytes();
    kept_.push_back(std::move(block));  // there is room: see take()
    if (!keeps_) free_kept(kept_.size() - 1);
  }
  changed_.notify_all();
}

std::uint64_t StagingMemory::held() const {
  const std::lock_guard lock(mutex_);
  return held_bytes_;
}

std::uint64_t StagingMemory::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace cairn
