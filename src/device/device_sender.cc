#include "device/device_sender.h"

#include <utility>

#include "base/checked.h"
#include "cairn/error.h"
#include "device/row_copies.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

constexpr std::uint64_t kAlignment = 64;

}  // namespace

DeviceSender::DeviceSender(std::shared_ptr<DeviceDriver> driver, int device,
                           std::unique_ptr<DeviceStream> stream, const RingOptions& options)
    : driver_(std::move(driver)), device_(device), options_(options), stream_(std::move(stream)) {}

bool DeviceSender::has_room(std::uint64_t bytes) const {
  return !slots_.empty() && align_up(used_, kAlignment) + bytes <= options_.slot_bytes;
}

void DeviceSender::next_slot() {
  if (slots_.empty()) {
    memory_ =
        std::make_unique<PinnedMemory>(driver_, device_, options_.slots * options_.slot_bytes, options_.pin);
    for (std::size_t i = 0; i < options_.slots; ++i)
      slots_.push_back({memory_->data() + i * options_.slot_bytes, 0});
  } else {
    slots_[slot_].mark = stream_->mark();
    slot_ = (slot_ + 1) % slots_.size();
    stream_->wait(slots_[slot_].mark);
  }
  used_ = 0;
}

std::byte* DeviceSender::room(std::uint64_t bytes) {
  if (bytes > options_.slot_bytes) throw Error(ErrorCode::kInternal, "more bytes than a slot has");
  if (!has_room(bytes)) next_slot();
  const std::uint64_t at = align_up(used_, kAlignment);
  used_ = at + bytes;
  return slots_[slot_].memory + at;
}

void DeviceSender::send(const TensorView& from, const TensorView& to) {
  RowCopies(from, to).for_each([&](const DeviceCopy& copy) { stream_->begin(CopyWay::kToDevice, copy); });
}

void DeviceSender::send_copy(const TensorView& from, const TensorView& to) {
  if (to.numel() == 0) return;
  const std::uint64_t item = item_size(to.dtype);
  for_each_piece(
      Box::whole(to.shape), most(),
      [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item; },
      [&](const Box& box) {
        const TensorView part = to.narrow(box);
        const TensorView made = TensorView::contiguous(room(part.bytes()), to.dtype, part.shape);
        copy(from.narrow(box), made);
        send(made, part);
      });
}

void DeviceSender::wait() { stream_->wait(stream_->mark()); }

DeviceSender& DeviceSenders::to(Device device) {
  std::unique_ptr<DeviceSender>& sender = senders_[device.index];
  if (sender == nullptr) {
    sender =
        std::make_unique<DeviceSender>(driver_.get(), device.index, driver_.open_stream(device.index), ring_);
  }
  return *sender;
}

void DeviceSenders::wait() {
  for (const auto& [device, sender] : senders_) sender->wait();
}

}  // namespace cairn
