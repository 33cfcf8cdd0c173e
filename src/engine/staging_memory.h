// The memory of snapshots: large blocks, kept from one to the next, within a budget.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cairn {

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
  std::shared_ptr<void> take(std::uint64_t bytes, Time deadline);

  // Frees what nobody holds, and, until the next take(), what is given back.
  void trim();

  std::uint64_t held() const;  // bytes of blocks in use
  std::uint64_t kept() const;  // bytes of blocks that wait to be used again

 private:
  struct Block {
    void* data = nullptr;
    std::uint64_t bytes = 0;
  };
  bool reuse(std::uint64_t bytes, Block& block);
  bool make_room(std::uint64_t bytes);
  void wait_for_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, Time deadline);
  void give_back(const Block& block) noexcept;
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
