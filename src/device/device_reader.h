// Brings the elements of tensors from a device, piece by piece, while earlier pieces are worked on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/pod_vector.h"
#include "cairn/tensor.h"
#include "device/device_ring.h"

namespace cairn {

// Used by one thread at a time.
//
//   DeviceReader reader(driver, 0, driver.open_stream(0), {});
//   reader.begin(tensor);
//   for (ByteSpan piece = reader.next(); !piece.empty(); piece = reader.next()) file.append(piece);
class DeviceReader {
 public:
  DeviceReader(std::shared_ptr<DeviceDriver> driver, int device, std::unique_ptr<DeviceStream> stream,
               const RingOptions& options);

  // The device has to pass this before what begins from now on is copied.
  void follow(const DeviceFence& fence) { stream_->follow(fence); }

  // The next tensor, of any strides. Its memory must stay until next() has returned all of it, or drop().
  void begin(const TensorView& tensor);
  // The next elements in row-major order, until the next call: whole slots but for the last when the tensor
  // is dense. Empty when there are no more. Error(kIo) when the device fails.
  ByteSpan next();
  // The rest of the tensor is not wanted any more, and not looked at after this.
  void drop() noexcept;

 private:
  // Elements that lie together enough to be fetched at once.
  struct Fetch {
    TensorView view;
    bool gathered = false;  // all between the first and the last byte is fetched, and sorted out here
  };
  struct Slot {
    std::byte* memory = nullptr;
    std::uint64_t mark = 0;
  };
  void cut(const TensorView& tensor);
  void fetch();
  void fill(Slot& slot, const Fetch& piece);
  ByteSpan gather(const Slot& slot, const Fetch& piece);

  std::shared_ptr<DeviceDriver> driver_;
  const int device_;
  const RingOptions options_;
  std::unique_ptr<PinnedMemory> memory_;  // taken with the first tensor
  std::unique_ptr<DeviceStream> stream_;  // ends before the memory
  std::vector<Slot> slots_;
  PodVector<std::byte> sorted_;
  std::vector<Fetch> pieces_;
  std::size_t fetched_ = 0;  // pieces whose copy has begun
  std::size_t given_ = 0;    // pieces that next() has returned
};

}  // namespace cairn
