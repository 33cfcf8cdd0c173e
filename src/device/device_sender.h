// Brings bytes to a device, piece by piece, while later pieces are being made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cairn/tensor.h"
#include "device/device_ring.h"

namespace cairn {

// Used by one thread at a time.
//
//   std::byte* room = sender.room(bytes);
//   ... fill it ...
//   sender.send(TensorView::contiguous(room, dtype, shape), on_device);
//   sender.wait();
class DeviceSender {
 public:
  DeviceSender(std::shared_ptr<DeviceDriver> driver, int device, std::unique_ptr<DeviceStream> stream,
               const RingOptions& options);

  std::uint64_t most() const { return options_.slot_bytes; }  // bytes of one room
  bool has_room(std::uint64_t bytes) const;                   // room() would not begin a new slot
  // Memory for so many bytes, at a multiple of 64, and of 4096 when a slot begins. Waits until what was there
  // before has reached the device.
  std::byte* room(std::uint64_t bytes);
  // `from` lies in what room() gave last; `to` has the same shape and element type, and any strides.
  void send(const TensorView& from, const TensorView& to);
  // Copies `from`, wherever it is in the CPU's memory and whatever its element type, in as many pieces as it
  // takes.
  void send_copy(const TensorView& from, const TensorView& to);
  // All that was sent is there. Error(kIo) when the device fails.
  void wait();

 private:
  struct Slot {
    std::byte* memory = nullptr;
    std::uint64_t mark = 0;
  };
  void next_slot();

  std::shared_ptr<DeviceDriver> driver_;
  const int device_;
  const RingOptions options_;
  std::unique_ptr<PinnedMemory> memory_;  // taken when the first room is asked for
  std::unique_ptr<DeviceStream> stream_;  // ends before the memory
  std::vector<Slot> slots_;
  std::size_t slot_ = 0;
  std::uint64_t used_ = 0;  // bytes of the slot
};

// A sender for each device that somebody sends to. Used by one thread at a time; the driver is borrowed.
class DeviceSenders {
 public:
  DeviceSenders(LazyDriver& driver, const RingOptions& ring) : driver_(driver), ring_(ring) {}

  DeviceSender& to(Device device);
  void wait();  // for all of them

 private:
  LazyDriver& driver_;
  RingOptions ring_;
  std::map<int, std::unique_ptr<DeviceSender>> senders_;
};

}  // namespace cairn
