#include "device/device_reader.h"

#include <algorithm>
#include <utility>

#include "device/row_copies.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

// The bytes of a dense tensor, whatever its elements are: they can be cut anywhere.
TensorView flat(const TensorView& tensor) {
  TensorView bytes =
      TensorView::contiguous(tensor.data, DType::kUInt8, {static_cast<std::int64_t>(tensor.bytes())});
  bytes.device = tensor.device;
  return bytes;
}

}  // namespace

DeviceReader::DeviceReader(std::shared_ptr<DeviceDriver> driver, int device,
                           std::unique_ptr<DeviceStream> stream, const RingOptions& options)
    : driver_(std::move(driver)), device_(device), options_(options), stream_(std::move(stream)) {}

void DeviceReader::begin(const TensorView& tensor) {
  if (slots_.empty()) {
    memory_ =
        std::make_unique<PinnedMemory>(driver_, device_, options_.slots * options_.slot_bytes, options_.pin);
    for (std::size_t i = 0; i < options_.slots; ++i)
      slots_.push_back({memory_->data() + i * options_.slot_bytes, 0});
  }
  pieces_.clear();
  fetched_ = given_ = 0;
  if (tensor.numel() > 0) cut(tensor.is_contiguous() ? flat(tensor) : tensor);
  while (fetched_ < std::min(pieces_.size(), slots_.size())) fetch();
}

void DeviceReader::cut(const TensorView& tensor) {
  const bool gathered = is_better_gathered(tensor);
  const std::uint64_t item = item_size(tensor.dtype);
  const auto size_of = [&](const Box& box) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(box.volume()) * item;
    return gathered ? std::max(bytes, extent_of(tensor.narrow(box)).bytes) : bytes;
  };
  for_each_piece(Box::whole(tensor.shape), options_.slot_bytes, size_of, [&](const Box& box) {
    pieces_.push_back({tensor.narrow(box), gathered});
  });
}

void DeviceReader::fetch() {
  const std::size_t piece = fetched_++;
  Slot& slot = slots_[piece % slots_.size()];
  fill(slot, pieces_[piece]);
  slot.mark = stream_->mark();
}

void DeviceReader::fill(Slot& slot, const Fetch& piece) {
  const auto begin = [&](const DeviceCopy& copy) { stream_->begin(CopyWay::kToHost, copy); };
  if (piece.gathered) {
    const ByteExtent extent = extent_of(piece.view);
    return begin({.from = extent.first, .to = slot.memory, .row = extent.bytes});
  }
  RowCopies(piece.view, TensorView::contiguous(slot.memory, piece.view.dtype, piece.view.shape))
      .for_each(begin);
}

ByteSpan DeviceReader::gather(const Slot& slot, const Fetch& piece) {
  TensorView fetched = piece.view;
  fetched.device = {};
  fetched.data = slot.memory + (piece.view.data - extent_of(piece.view).first);
  sorted_.clear();
  std::byte* const to = sorted_.extend(piece.view.bytes());
  copy(fetched, TensorView::contiguous(to, fetched.dtype, fetched.shape));
  return {to, piece.view.bytes()};
}

ByteSpan DeviceReader::next() {
  // The piece before is not used any more: its slot takes the next one.
  if (given_ > 0 && fetched_ < pieces_.size()) fetch();
  if (given_ == pieces_.size()) return {};
  const Fetch& piece = pieces_[given_];
  const Slot& slot = slots_[given_ % slots_.size()];
  stream_->wait(slot.mark);
  ++given_;
  return piece.gathered ? gather(slot, piece) : ByteSpan{slot.memory, piece.view.bytes()};
}

void DeviceReader::drop() noexcept {
  try {
    pieces_.clear();
    fetched_ = given_ = 0;
    stream_->wait(stream_->mark());
  } catch (...) {
    // A device that fails is told to who waits for bytes.
  }
}

}  // namespace cairn
