// What copies from devices need, kept from snapshot to snapshot: streams, and a ring where memory is not
// pinned.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cairn/staging.h"
#include "device/device_reader.h"

namespace cairn {

// One thread's. What it has begun must have ended when it goes back.
class DeviceLane {
 public:
  DeviceLane(std::shared_ptr<DeviceDriver> driver, const RingOptions& ring)
      : driver_(std::move(driver)), ring_(ring) {}

  DeviceStream& stream(int device);
  DeviceReader& reader(int device);
  void drop_rings() { readers_.clear(); }

 private:
  std::shared_ptr<DeviceDriver> driver_;
  RingOptions ring_;
  std::map<int, std::unique_ptr<DeviceStream>> streams_;
  std::map<int, std::unique_ptr<DeviceReader>> readers_;
};

// Used by many threads at once.
class DeviceLanes {
 public:
  // `threads` lanes have a ring of 64 MiB together.
  DeviceLanes(const StagingOptions& options, int threads);

  LazyDriver& driver() { return driver_; }
  Pinning pinning() const { return refused_ ? Pinning::kRing : pinning_; }
  bool must_pin() const { return required_; }
  // The system did not pin a snapshot: Error(kLimit) when it has to. Not tried again until clear().
  void note_refusal();

  std::unique_ptr<DeviceLane> take();
  void give_back(std::unique_ptr<DeviceLane> lane);
  void clear();       // gives up the lanes that nobody uses
  void drop_rings();  // of those: their memory; they make new ones when they need them

 private:
  LazyDriver driver_;
  const Pinning pinning_;
  const bool required_;
  const RingOptions ring_;
  std::atomic<bool> refused_ = false;
  std::mutex mutex_;  // guards lanes_
  std::vector<std::unique_ptr<DeviceLane>> lanes_;
};

}  // namespace cairn
