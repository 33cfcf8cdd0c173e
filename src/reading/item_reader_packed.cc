// Items that went through a transform: unpacked in memory, or when they are too large for that on their way.
#include <fmt/format.h>

#include <utility>

#include "reading/item_reader.h"
#include "reading/read_to_device.h"
#include "reading/stored_item.h"
#include "reading/torch_elements.h"
#include "reading/transforms.h"
#include "reading/unpacked_source.h"
#include "tensor/selection.h"

namespace cairn {
namespace {

// Reads of such a tensor, or of any part of it, ascend.
bool is_row_major(const StoredElements& elements) {
  TensorView view;
  view.dtype = elements.dtype;
  view.shape = elements.shape;
  view.strides = elements.strides;
  return view.is_contiguous();
}

}  // namespace

// What an item needs while it is read: its bytes, and what its transforms make of them.
std::uint64_t ItemReader::memory_for(const WantedItem& wanted) {
  if (!wanted.transformed()) return wanted.length;
  const std::uint64_t plain = wanted.tensor == nullptr
                                  ? wanted.length
                                  : most_tensor_bytes(*wanted.chunk, wanted.tensor->properties.dtype) / 2;
  return saturating_add(wanted.length, plain);
}

// For the budget, and there is another way.
bool ItemReader::is_too_large(const WantedItem& wanted) const {
  return wanted.tensor != nullptr && memory_for(wanted) > memory_.total() &&
         (wanted.by_caller || can_be_streamed(*wanted.transforms));
}

// From the compressed stream to the destination. False when the elements lie so that the stream would have to
// be unpacked again and again, or are none that we understand; nothing was written then.
bool ItemReader::read_streamed(std::size_t at, Scratch& scratch) {
  const WantedItem& wanted = work_.items[at];
  try {
    const auto packed = slice_of(opened(wanted.file).source, wanted.offset, wanted.length);
    const std::uint64_t most = most_tensor_bytes(*wanted.chunk, wanted.tensor->properties.dtype);
    const auto unpacked = std::make_shared<UnpackedSource>(packed, [&wanted, packed, most, this] {
      return wanted.by_caller ? decoder_of(wanted, packed, most) : open_stream(*packed, most);
    });
    const auto file = open_item_archive(unpacked, options_.limits);
    StoredElements elements = elements_of(*file, chunk_in(*file, *wanted.chunk));
    if (!is_row_major(elements)) return false;
    const std::optional<std::uint32_t> crc = std::exchange(elements.crc, std::nullopt);
    const bool check = crc && options_.verify != Verify::kNone && !is_checked(wanted);
    if (check) unpacked->sum(elements.storage_offset, elements.storage_offset + elements.storage_bytes);
    const TensorView to = destination(at);
    written_[at] = true;
    stream_to(to, elements, *wanted.item, scratch);
    if (check && unpacked->finish_sum() != *crc) {
      throw Error(ErrorCode::kCorrupt, fmt::format("the elements' CRC-32 is {:08x}, the archive says {:08x}",
                                                   unpacked->finish_sum(), *crc));
    }
    planner_.commit_tensor(*wanted.item, to);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kUnsupported && !written_[at]) return false;  // the planner may know more
    throw told(e, wanted);
  }
  return true;
}

std::unique_ptr<ItemDecoder> ItemReader::decoder_of(const WantedItem& wanted,
                                                    std::shared_ptr<const ByteSource> stored,
                                                    std::uint64_t most) const {
  return bounded(options_.transform->decode(*wanted.item, *wanted.transforms, std::move(stored)), most);
}

void ItemReader::stream_to(const TensorView& to, const StoredElements& elements, const ReadItem& item,
                           Scratch& scratch) {
  const Selection selection = selection_of({item.storage_offsets, item.lengths});
  if (to.device.is_cpu()) return read_box(elements, selection, to);
  read_to_device(elements, selection, to, 0, false, scratch.senders.to(to.device), [](const ReadRun&) {});
  scratch.senders.wait();
}

void ItemReader::read_transformed(std::size_t at, const std::string& name, Scratch& scratch) {
  const WantedItem& wanted = work_.items[at];
  const std::uint64_t most = wanted.tensor == nullptr
                                 ? most_object_bytes(wanted.length, options_.limits)
                                 : most_tensor_bytes(*wanted.chunk, wanted.tensor->properties.dtype);
  const auto stored = memory_source({scratch.bytes.data(), scratch.bytes.size()}, name);
  const std::string plain = wanted.by_caller ? read_to_end(*decoder_of(wanted, stored, most))
                                             : undo_transforms_in_memory(*stored, *wanted.transforms, most);
  if (wanted.tensor != nullptr) {
    read_tensor(at, as_bytes(plain), name, scratch);
  } else {
    read_object(at, as_bytes(plain), name);
  }
}

}  // namespace cairn
