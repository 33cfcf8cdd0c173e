#include "reading/read_to_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/hash.h"
#include "cairn/error.h"
#include "format/manifest.h"
#include "tensor/pieces.h"

namespace cairn {
namespace {

// Where the selected elements begin in the storage when they lie there one after the other, in row-major
// order.
std::optional<std::uint64_t> dense_begin(const StoredElements& from, const Selection& selection) {
  TensorView part;
  part.dtype = from.dtype;
  part.shape = from.shape;
  part.strides = from.strides;
  auto first = static_cast<std::int64_t>(from.first_element);
  for (std::size_t d = 0; d < selection.size(); ++d) {
    part.shape[d] = selection[d].count;
    if (selection[d].step != 1 && selection[d].count > 1) return std::nullopt;
    first = checked_add(first, checked_mul(selection[d].start, from.strides[d]));
  }
  if (first < 0 || !part.is_contiguous()) return std::nullopt;
  return checked_mul(static_cast<std::uint64_t>(first), std::uint64_t{item_size(from.dtype)});
}

class DenseRead {
 public:
  DenseRead(const StoredElements& from, const TensorView& to, bool sum, DeviceSender& sender)
      : from_(from), to_(to), sum_(sum), sender_(sender) {}

  void run(std::uint64_t begin, std::uint64_t file_offset, const std::function<void(const ReadRun&)>& each) {
    const std::uint64_t bytes = to_.bytes();
    if (checked_add(begin, bytes) > from_.storage_bytes) {
      throw Error(ErrorCode::kCorrupt, fmt::format("elements up to byte {} of a storage of {} bytes",
                                                   begin + bytes, from_.storage_bytes))
          .at(from_.storage_offset);
    }
    for (std::uint64_t done = 0; done < bytes;) {
      // Whole blocks of the file are read once and checked where they are; others twice.
      const std::uint64_t in_file = file_offset + from_.storage_offset + begin + done;
      const std::uint64_t piece =
          std::min(bytes - done, (in_file + sender_.most()) / kManifestBlock * kManifestBlock - in_file);
      each(move(begin + done, done, piece));
      done += piece;
    }
  }

 private:
  ReadRun move(std::uint64_t at, std::uint64_t done, std::uint64_t bytes) {
    std::byte* const room = sender_.room(bytes);
    from_.source->read_at(from_.storage_offset + at, {room, bytes});
    const Shape flat{static_cast<std::int64_t>(bytes)};
    TensorView there = TensorView::contiguous(to_.data + done, DType::kUInt8, flat);
    there.device = to_.device;
    sender_.send(TensorView::contiguous(room, DType::kUInt8, flat), there);
    return {at, at + bytes, sum_ ? crc32({room, bytes}) : 0, true};
  }

  const StoredElements& from_;
  const TensorView& to_;
  const bool sum_;
  DeviceSender& sender_;
};

}  // namespace

void read_to_device(const StoredElements& from, const Selection& selection, const TensorView& to,
                    std::uint64_t file_offset, bool sum, DeviceSender& sender,
                    const std::function<void(const ReadRun&)>& each) {
  if (to.numel() == 0) return;
  const std::optional<std::uint64_t> begin = dense_begin(from, selection);
  if (begin && to.is_contiguous() && to.dtype == from.dtype)
    return DenseRead(from, to, sum, sender).run(*begin, file_offset, each);
  const std::uint64_t item = item_size(to.dtype);
  for_each_piece(
      Box::whole(to.shape), sender.most(),
      [&](const Box& box) { return static_cast<std::uint64_t>(box.volume()) * item; },
      [&](const Box& box) {
        Selection part = selection;
        for (std::size_t d = 0; d < part.size(); ++d) {
          part[d].start += box.offsets[d] * part[d].step;
          part[d].count = box.sizes[d];
        }
        const TensorView there = to.narrow(box);
        const TensorView here = TensorView::contiguous(sender.room(there.bytes()), to.dtype, box.sizes);
        ReadRun run;
        read_box(from, part, here, sum ? &run : nullptr);
        sender.send(here, there);
        each(run);
      });
}

}  // namespace cairn
