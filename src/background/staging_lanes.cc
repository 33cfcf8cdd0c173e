#include "background/staging_lanes.h"

#include <algorithm>
#include <utility>

#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::uint64_t kRingBytes = 64U << 20;  // of all lanes
constexpr std::size_t kSlots = 2;

RingOptions ring_of(const StagingOptions& options, int threads) {
  const std::uint64_t slot = kRingBytes / static_cast<std::uint64_t>(threads) / kSlots;
  RingOptions ring;
  ring.slots = kSlots;
  ring.slot_bytes = std::clamp<std::uint64_t>(slot / 4096 * 4096, 4096, 2U << 20);
  ring.pin = options.pinning != Pinning::kNone;
  return ring;
}

}  // namespace

DeviceStream& DeviceLane::stream(int device) {
  std::unique_ptr<DeviceStream>& stream = streams_[device];
  if (stream == nullptr) stream = driver_->open_stream(device);
  return *stream;
}

DeviceReader& DeviceLane::reader(int device) {
  std::unique_ptr<DeviceReader>& reader = readers_[device];
  if (reader == nullptr)
    reader = std::make_unique<DeviceReader>(driver_, device, driver_->open_stream(device), ring_);
  return *reader;
}

DeviceLanes::DeviceLanes(const StagingOptions& options, int threads)
    : driver_(options.devices),
      pinning_(options.pinning),
      required_(options.require_pinning),
      ring_(ring_of(options, threads)) {}

void DeviceLanes::note_refusal() {
  if (required_) {
    throw Error(ErrorCode::kLimit,
                "the system refuses to pin the snapshot's memory: raise the limit of locked memory "
                "(ulimit -l, or the container's), or do not require it")
        .while_doing("staging");
  }
  refused_ = true;
}

std::unique_ptr<DeviceLane> DeviceLanes::take() {
  const std::lock_guard lock(mutex_);
  if (lanes_.empty()) return std::make_unique<DeviceLane>(driver_.get(), ring_);
  std::unique_ptr<DeviceLane> lane = std::move(lanes_.back());
  lanes_.pop_back();
  return lane;
}

void DeviceLanes::give_back(std::unique_ptr<DeviceLane> lane) {
  const std::lock_guard lock(mutex_);
  lanes_.push_back(std::move(lane));
}

void DeviceLanes::drop_rings() {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<DeviceLane>& lane : lanes_) lane->drop_rings();
}

void DeviceLanes::clear() {
  std::vector<std::unique_ptr<DeviceLane>> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(lanes_);
  refused_ = false;
}

}  // namespace cairn
