// A few buffers of pinned memory, in which pieces of tensors are on their way to or from a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "cairn/device.h"

namespace cairn {

struct RingOptions {
  std::uint64_t slot_bytes = std::uint64_t{2} << 20;  // a multiple of 4096
  std::size_t slots = 4;
  bool pin = true;  // when the system refuses, copies are slower, and that is all
};

// The memory of the buffers. Used by one thread at a time.
class PinnedMemory {
 public:
  PinnedMemory(std::shared_ptr<DeviceDriver> driver, int device, std::uint64_t bytes, bool pin);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<DeviceDriver> driver_;
  const int device_;
  const std::uint64_t bytes_;
  std::byte* data_;
  bool pinned_;
};

// A driver that is opened when the first tensor of a device comes. May be used by many threads at once.
class LazyDriver {
 public:
  explicit LazyDriver(DeviceUse use) : use_(std::move(use)) {}

  const std::shared_ptr<DeviceDriver>& get();
  // A stream of our own, behind the caller's work so far.
  std::unique_ptr<DeviceStream> open_stream(int device);
  // Null when the copies are not to wait.
  std::unique_ptr<DeviceFence> fence(int device);

 private:
  std::mutex mutex_;  // guards use_.driver
  DeviceUse use_;
};

}  // namespace cairn
