// Copies from the memory of devices into a snapshot.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "background/staging_lanes.h"
#include "background/staging_layout.h"
#include "background/staging_memory.h"

namespace cairn {

// Where a place's copies go.
struct PlaceMemory {
  std::byte* data = nullptr;
  Device device;                         // it is the memory of
  std::shared_ptr<void> owner;           // keeps it
  std::shared_ptr<SnapshotBlock> block;  // the CPU's that it is a part of; else null
  std::shared_ptr<DeviceFence> fence;    // to be passed before the live tensors are read; may be null
};

// A part of a device's tensors that one thread copies: what goes into one cell of a block, or into a device.
struct DeviceTask {
  struct Copy {
    TensorView from;
    std::byte* to;  // dense
  };
  const PlaceMemory* memory = nullptr;
  std::size_t cell = 0;  // of the block
  std::vector<Copy> pieces;
  std::uint64_t bytes = 0;
};

// The tasks of all places that are not the CPU's, by place and cell. `memory` is by place.
std::vector<DeviceTask> device_tasks(const StagingLayout& layout, const std::vector<PlaceMemory>& memory);

// A cell that devices copy to, and that is not pinned.
struct UnpinnedCell {
  std::shared_ptr<SnapshotBlock> block;
  std::size_t cell = 0;
  int device = 0;
};

// None when snapshots are not pinned.
std::vector<UnpinnedCell> unpinned_cells(const std::vector<DeviceTask>& tasks, const DeviceLanes& lanes);

// Nothing when the system refuses: copies pass through a ring then. Error(kLimit) when it has to be pinned.
void pin_cell(SnapshotBlock& block, std::size_t cell, int device, DeviceLanes& lanes);

// One thread's copying. After an error it must not be used any more.
class DeviceCopier {
 public:
  explicit DeviceCopier(DeviceLanes& lanes) : lanes_(lanes) {}

  // Begins the copies of a task. Returns the bytes of older tasks that have ended meanwhile.
  std::uint64_t begin(const DeviceTask& task);
  // All that was begun has ended; returns the bytes of it that were not told before.
  std::uint64_t finish();

 private:
  // What begins there from now on sees what the caller's stream has done.
  template <class Stream> Stream& behind_caller(const DeviceTask& task, Stream& stream) {
    const DeviceFence* fence = task.memory->fence.get();
    if (fence != nullptr && followed_.emplace(fence, &stream).second) stream.follow(*fence);
    return stream;
  }
  struct Begun {
    DeviceStream* stream;
    std::uint64_t mark;
    std::uint64_t bytes;
  };
  bool is_straight(const DeviceTask& task, const DeviceTask::Copy& piece, bool pinned) const;
  void pass_through_ring(const DeviceTask& task, const DeviceTask::Copy& piece);
  std::uint64_t wait_for_oldest();

  DeviceLanes& lanes_;
  std::unique_ptr<DeviceLane> lane_;                               // taken with the first task
  std::set<std::pair<const DeviceFence*, const void*>> followed_;  // and by which stream or reader
  std::deque<Begun> begun_;
};

}  // namespace cairn
