// Snapshots: a state, copied to memory that nobody else can change.
//
// A save in the background (cairn/async.h) writes from a snapshot while the training goes on. The default
// stager copies tensors in the CPU's memory and in that of devices; a subclass of Stager may copy from
// anywhere to anywhere.
//
//   auto stager = default_stager({.budget = std::uint64_t{64} << 30});
//   Snapshot snapshot = stager->stage(state, {});
//   snapshot.whole.get();                       // from here on the state may change
//
// Threads: a stager may be used by many threads at once, a Snapshot by one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>

#include "cairn/device.h"
#include "cairn/state_dict.h"

namespace cairn {

// A copy of a state, whole or still being made.
//
// The memory of its tensors is the stager's. It is used again when the last Tensor that refers to it is gone,
// and never before. Destroying a snapshot waits for its copying to end.
struct Snapshot {
  StateDict
      state;  // as the live one: names, types, shapes. The elements, and where they are, when it is whole
  std::uint64_t bytes = 0;         // of the budgets: the CPU's memory and the devices'
  std::shared_future<void> whole;  // or why it will never be
  std::shared_ptr<const std::atomic<std::uint64_t>> copied;  // bytes so far; may be null
  std::shared_ptr<void> copying;                             // what must live until it is whole
  // Called when all of it is written and nothing is published: throws when it is no longer what was copied.
  // May be empty.
  std::function<void()> check;
};

struct StageRequest {
  // false: stage() returns when the snapshot is whole. true: it returns as soon as there is memory, and the
  // live state must stay as it is, and where it is, until `whole` is ready.
  bool overlapped = false;
  // How long to wait for the memory of older snapshots. A time that has passed: not at all.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

class Stager {
 public:
  virtual ~Stager() = default;

  // Everything of the state is copied, plain values too. Error(kLimit) when the state is larger than the
  // budget, or does not fit now and may not wait; kTimeout when it waited in vain; kUnsupported for memory
  // that it cannot reach. Copies from a device's memory see what the caller's stream has done by the time of
  // this call (DeviceUse).
  virtual Snapshot stage(const StateDict& state, const StageRequest& request) = 0;

  // Does now what the first stage() of such a state would have to do first: takes the memory, brings its
  // pages in, pins it for devices. The elements of the state are not looked at.
  virtual void prepare(const StateDict& state) { (void)state; }

  // Every copy that was begun has ended.
  virtual void synchronize() = 0;

  // Gives back the memory that no snapshot holds, and that of the others as they end. The next stage() takes
  // new memory.
  virtual void close() = 0;
};

// Where the copies of tensors in a device's memory are.
enum class SnapshotPlace : std::uint8_t {
  kHost,    // in the CPU's memory
  kDevice,  // on the same device, while the save is written; Error(kLimit) when the memory is not free
  kAuto,    // on the device if that has the memory free and `device_budget` allows it, else in the CPU's
};

// Pinned memory is what a device copies to at full speed. When the system refuses to pin, the next is done.
enum class Pinning : std::uint8_t {
  // The snapshot itself. To pin takes longer than to copy, so that memory which prepare() has not pinned is
  // filled through the ring, and pinned for the next snapshot when this one is whole.
  kSnapshot,
  kRing,  // 64 MiB, through which everything passes
  kNone,  // nothing: the driver passes the bytes through memory of its own
};

struct StagingOptions {
  std::uint64_t budget = 0;  // bytes of all snapshots together, kept memory too; 0: no limit
  int threads = 0;           // that copy one snapshot; 0: as many as cores, up to 16
  // For debugging: compares the finished snapshot with the live state. Error(kConflict) names every tensor
  // that changed while it was copied. Costs as much as the copy.
  bool compare = false;
  // Sums the snapshot when it is copied, and again when it is written: a bit that flips in between makes the
  // save fail with Error(kCorrupt). Costs two readings of the memory. Copies on a device are left out.
  bool checksums = false;

  DeviceUse devices = {};
  SnapshotPlace place = SnapshotPlace::kHost;
  // Bytes of each device's memory for snapshots on it. 0: no limit with kDevice, none at all with kAuto.
  std::uint64_t device_budget = 0;
  Pinning pinning = Pinning::kSnapshot;
  bool require_pinning = false;  // before anything is copied; Error(kLimit) when the system refuses
};

// Copies tensors of any strides: the bytes that the views need and no others. Views that lie in one another
// share memory in the snapshot as they do in the state. The CPU's memory is aligned for direct I/O, lies on
// huge pages and is kept, pinned, from snapshot to snapshot; a device's is given back with the snapshot.
std::unique_ptr<Stager> default_stager(const StagingOptions& options = {});

}  // namespace cairn
