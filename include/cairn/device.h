// Memory of devices (GPUs), and the copies between it and the process's own.
//
// Nothing above this interface calls a vendor's library. cuda_driver() loads NVIDIA's driver when it is
// called, so one binary serves machines with and without a GPU.
//
//   std::shared_ptr<DeviceDriver> driver = cuda_driver();
//   auto stream = driver->open_stream(0);
//   stream->follow(*driver->fence(0, nullptr));        // after what the caller's stream has been given so
//   far stream->begin(CopyWay::kToHost, {.from = on_device, .to = pinned, .row = bytes});
//   stream->wait(stream->mark());
//
// Threads: a driver may be used by many at once, a stream by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cairn {

enum class CopyWay : std::uint8_t { kToHost, kToDevice, kOnDevice };

// Rows of bytes, in planes of rows.
struct DeviceCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t row = 0;  // bytes of one; not 0
  std::uint64_t rows = 1;
  std::uint64_t planes = 1;
  // From the beginning of a row to that of the next, in bytes: at least a row, below kMostPitch.
  std::uint64_t from_pitch = 0;
  std::uint64_t to_pitch = 0;
  // From plane to plane: whole pitches, at least `rows` of them.
  std::uint64_t from_plane = 0;
  std::uint64_t to_plane = 0;
  bool operator==(const DeviceCopy&) const = default;
};
inline constexpr std::uint64_t kMostPitch = (std::uint64_t{1} << 31) - 1;

// A point in the work that a stream of the caller's has been given.
class DeviceFence {
 public:
  virtual ~DeviceFence() = default;
};

// Copies on one device, one after the other, beside everything else the device does.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;  // waits until its copies have ended

  // What begins from now on waits until the device has passed the fence.
  virtual void follow(const DeviceFence& fence) = 0;

  // Returns at once when the host's memory is pinned. Neither side may change or go away until the copy has
  // ended.
  virtual void begin(CopyWay way, const DeviceCopy& copy) = 0;

  // Stands for all that was begun so far; later marks are greater.
  virtual std::uint64_t mark() = 0;
  // Until all that the mark stands for has ended. Error(kIo) when a copy has failed.
  virtual void wait(std::uint64_t mark) = 0;
};

// All devices of one kind, numbered from 0 as in Device::index. Held by a shared_ptr: what comes from it
// keeps it alive.
class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;

  virtual std::unique_ptr<DeviceStream> open_stream(int device) = 0;

  // The work so far of `stream`, a stream of the caller's (a CUstream); null, or one of another device: of
  // the device's default stream.
  virtual std::unique_ptr<DeviceFence> fence(int device, void* stream) = 0;

  virtual std::uint64_t free_memory(int device) = 0;  // bytes
  // Error(kLimit) when there is not so much.
  virtual std::shared_ptr<std::byte> allocate(int device, std::uint64_t bytes) = 0;

  // Makes memory of this process fast to copy, for all devices, until unpin(). A copy may not reach from one
  // pinned piece into another. False when the system refuses; nothing has changed then.
  virtual bool pin(int device, void* memory, std::uint64_t bytes) = 0;
  virtual void unpin(int device, void* memory) noexcept = 0;
};

// NVIDIA's, through libcuda.so.1. Error(kUnsupported) when it is not there, or finds no device.
std::shared_ptr<DeviceDriver> cuda_driver();

// How a stager, a writer or a reader meets tensors in a device's memory.
struct DeviceUse {
  std::shared_ptr<DeviceDriver> driver = nullptr;  // null: cuda_driver(), when the first such tensor comes
  // The copies wait for the work that this stream of the caller's has at the call; null: the default stream.
  void* stream = nullptr;
  bool ordered = true;  // false: for none
};

}  // namespace cairn
