// The CPU's memory for snapshots: large blocks, kept from one to the next, within a budget.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cairn/device.h"

namespace cairn {

// One block of memory, pinned cell by cell. Cells may be used by many threads at once, each by one of them.
class SnapshotBlock {
 public:
  // Large enough that calls do not count, small enough that copies follow right behind.
  static constexpr std::uint64_t kCell = 32U << 20;

  explicit SnapshotBlock(std::uint64_t bytes);  // Error(kLimit)
  SnapshotBlock(const SnapshotBlock&) = delete;
  SnapshotBlock& operator=(const SnapshotBlock&) = delete;
  ~SnapshotBlock();

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }  // at a multiple of 4096
  std::size_t cells() const { return pinned_.size(); }
  bool is_pinned(std::size_t cell) const { return pinned_[cell] != 0; }

  void populate(std::size_t cell);  // brings its pages in
  // Brings the pages in and pins them; false when the system refuses. A block is pinned by one driver only.
  bool pin(std::size_t cell, const std::shared_ptr<DeviceDriver>& driver, int device);

 private:
  std::uint64_t length_of(std::size_t cell) const;

  const std::uint64_t bytes_;
  std::byte* data_;
  std::vector<std::uint8_t> pinned_;  // by cell
  std::mutex mutex_;                  // guards what follows
  std::shared_ptr<DeviceDriver> driver_;
  int device_ = 0;
};

// Used by many threads at once. Held by a shared_ptr, because blocks may outlive whoever made it.
class StagingMemory : public std::enable_shared_from_this<StagingMemory> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit StagingMemory(std::uint64_t budget);  // 0: no limit
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  ~StagingMemory();

  // At least `bytes`, at a multiple of 4096, until the last copy of the pointer is gone. Error(kLimit) when
  // there can never be that much, or not now and the deadline has passed already; kTimeout at the deadline.
  std::shared_ptr<SnapshotBlock> take(std::uint64_t bytes, Time deadline);

  // Frees what nobody holds, and, until the next take(), what is given back.
  void trim();

  std::uint64_t held() const;  // bytes of blocks in use
  std::uint64_t kept() const;  // bytes of blocks that wait to be used again

 private:
  using Block = std::unique_ptr<SnapshotBlock>;
  bool reuse(std::uint64_t bytes, Block& block);
  bool make_room(std::uint64_t bytes);
  void wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, Time deadline);
  void give_back(Block block) noexcept;
  void free_kept(std::size_t index);

  const std::uint64_t budget_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Block> kept_;  // has room for every block there is
  std::size_t blocks_ = 0;   // held and kept
  bool keeps_ = true;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace cairn
