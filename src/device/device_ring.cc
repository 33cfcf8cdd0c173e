#include "device/device_ring.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/large_block.h"
#include "cairn/error.h"

namespace cairn {
namespace {

std::byte* map_ring(std::uint64_t bytes) {
  try {
    auto* const data = static_cast<std::byte*>(resize_block(nullptr, 0, bytes));
    populate(data, bytes);
    return data;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kLimit, "the system has no memory for the buffers of a device's copies");
  }
}

}  // namespace

PinnedMemory::PinnedMemory(std::shared_ptr<DeviceDriver> driver, int device, std::uint64_t bytes, bool pin)
    : driver_(std::move(driver)),
      device_(device),
      bytes_(std::max<std::uint64_t>(bytes, kLargeBlock)),  // less would not be aligned
      data_(map_ring(bytes_)),
      pinned_(pin && driver_->pin(device_, data_, bytes_)) {}

PinnedMemory::~PinnedMemory() {
  if (pinned_) driver_->unpin(device_, data_);
  free_block(data_, bytes_);
}

const std::shared_ptr<DeviceDriver>& LazyDriver::get() {
  const std::lock_guard lock(mutex_);
  if (use_.driver == nullptr) use_.driver = cuda_driver();
  return use_.driver;
}

std::unique_ptr<DeviceFence> LazyDriver::fence(int device) {
  return use_.ordered ? get()->fence(device, use_.stream) : nullptr;
}

std::unique_ptr<DeviceStream> LazyDriver::open_stream(int device) {
  std::unique_ptr<DeviceStream> stream = get()->open_stream(device);
  if (const auto behind = fence(device)) stream->follow(*behind);
  return stream;
}

}  // namespace cairn
