#include "reading/read_box.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/hash.h"

namespace cairn {
namespace {

// One dimension of what is to be copied. Dimensions of one element are left out, the rest are ordered
// from the widest step in the source to the narrowest, so that walking them in order ascends in the file.
struct Axis {
  std::int64_t count = 0;
  std::int64_t from = 0;  // step in the source, in elements
  std::int64_t to = 0;    // step in the destination, in elements
};

std::uint64_t gap_allowed(std::uint64_t bytes) { return std::max(kSmallGap, bytes / kGapShare); }

class BoxReader {
 public:
  BoxReader(const StoredElements& from, const Selection& selection, const TensorView& to, bool sum)
      : from_(from),
        to_(to),
        item_(item_size(from.dtype)),
        to_item_(item_size(to.dtype)),
        sum_(sum || from.crc) {
    std::uint64_t first = from.first_element;
    std::uint64_t last = from.first_element;
    for (std::size_t d = 0; d < selection.size(); ++d) {
      const Range& range = selection[d];
      if (from.strides[d] < 0)
        throw Error(ErrorCode::kUnsupported, "the stored tensor has a negative stride");
      const auto stride = static_cast<std::uint64_t>(from.strides[d]);
      first = checked_add(first, checked_mul(static_cast<std::uint64_t>(range.start), stride));
      const std::int64_t reach = checked_add(range.start, checked_mul(range.count - 1, range.step));
      last = checked_add(last, checked_mul(static_cast<std::uint64_t>(reach), stride));
      if (range.count == 1) continue;
      // The last element of the axis is inside the storage, so one step is too.
      axes_.push_back({range.count, checked_mul(from.strides[d], range.step), to.strides[d]});
    }
    begin_ = checked_mul<std::uint64_t>(first, item_);
    end_ = checked_mul<std::uint64_t>(checked_add<std::uint64_t>(last, 1), item_);
    check_bounds();
    std::stable_sort(axes_.begin(), axes_.end(),
                     [](const Axis& a, const Axis& b) { return a.from > b.from; });
    choose_block();
  }

  ReadRun run() {
    walk_outer();
    check_crc();
    return run_;
  }

 private:
  void check_bounds() const {
    if (end_ > from_.storage_bytes) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("elements up to byte {} of a storage of {} bytes", end_, from_.storage_bytes))
          .at(from_.storage_offset);
    }
    if (checked_add(from_.storage_offset, from_.storage_bytes) > from_.source->size()) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("a storage of {} bytes from {} on, in {} bytes", from_.storage_bytes,
                              from_.storage_offset, from_.source->size()));
    }
  }

  // Finds how many of the innermost axes one read can serve (`inner_`), and how many steps of the next
  // one fit into the same read (`group_`). All numbers are below the storage's size.
  void choose_block() {
    inner_ = axes_.size();
    extent_ = item_;  // bytes from the first to the last wanted byte of one block
    group_ = 1;
    dense_ = from_.dtype == to_.dtype;  // the block is one run of bytes in both
    std::int64_t elements = 1;
    while (inner_ > 0) {
      const Axis& axis = axes_[inner_ - 1];
      const std::uint64_t step = static_cast<std::uint64_t>(axis.from) * item_;
      if (step > extent_ && step - extent_ > gap_allowed(extent_)) return;
      const std::uint64_t whole = step * static_cast<std::uint64_t>(axis.count - 1) + extent_;
      const bool stays_dense = dense_ && axis.from == elements && axis.to == elements;
      // A run of bytes that is long enough goes straight to its place rather than through the buffer.
      if (dense_ && !stays_dense && extent_ >= kReadBuffer / 32) return;
      if (!stays_dense && whole > kReadBuffer) {
        dense_ = false;
        group_ = step == 0 ? axis.count : 1 + static_cast<std::int64_t>((kReadBuffer - extent_) / step);
        return;
      }
      dense_ = stays_dense;
      elements *= stays_dense ? axis.count : 1;
      extent_ = whole;
      --inner_;
    }
  }

  // Steps through the axes outside the block like an odometer.
  void walk_outer() {
    const std::size_t outer = inner_;
    std::vector<std::int64_t> at(outer, 0);
    for (;;) {
      std::uint64_t from = begin_;
      std::int64_t to = 0;
      for (std::size_t d = 0; d < outer; ++d) {
        from += static_cast<std::uint64_t>(at[d] * axes_[d].from) * item_;
        to += at[d] * axes_[d].to;
      }
      const std::int64_t left = outer == 0 ? 1 : axes_[outer - 1].count - at[outer - 1];
      const std::int64_t steps = std::min(group_, left);
      read_block(from, to_.data + to * static_cast<std::int64_t>(to_item_), steps);
      if (outer == 0) return;
      at[outer - 1] += steps;
      for (std::size_t d = outer; d-- > 0 && at[d] >= axes_[d].count;) {
        if (d == 0) return;
        at[d] = 0;
        ++at[d - 1];
      }
    }
  }

  void read_block(std::uint64_t from, std::byte* to, std::int64_t steps) {
    if (dense_) {
      for (std::uint64_t done = 0; done < extent_;) {
        const std::uint64_t piece = std::min(extent_ - done, kReadBuffer);
        read(from + done, {to + done, piece});
        done += piece;
      }
      return;
    }
    const std::uint64_t step = inner_ == 0 ? 0 : static_cast<std::uint64_t>(axes_[inner_ - 1].from) * item_;
    const std::uint64_t bytes = extent_ + step * static_cast<std::uint64_t>(steps - 1);
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    read(from, std::span(buffer_).first(bytes));
    copy(block_view(buffer_.data(), from_.dtype, steps, &Axis::from),
         block_view(to, to_.dtype, steps, &Axis::to));
  }

  TensorView block_view(std::byte* data, DType dtype, std::int64_t steps, std::int64_t Axis::*stride) const {
    const std::size_t first = steps > 1 ? inner_ - 1 : inner_;
    TensorView view;
    view.data = data;
    view.dtype = dtype;
    view.shape = Shape(axes_.size() - first, 0);
    view.strides = view.shape;
    for (std::size_t d = first; d < axes_.size(); ++d) {
      view.shape[d - first] = axes_[d].count;
      view.strides[d - first] = axes_[d].*stride;
    }
    if (steps > 1) view.shape[0] = steps;
    return view;
  }

  void read(std::uint64_t offset, std::span<std::byte> bytes) {
    from_.source->read_at(from_.storage_offset + offset, bytes);
    if (!started_) run_ = {offset, offset, 0, true};
    started_ = true;
    run_.unbroken = run_.unbroken && offset == run_.end;
    run_.end = offset + bytes.size();
    if (run_.unbroken && sum_) run_.crc = crc32(bytes, run_.crc);
  }

  // Reads that followed each other from the storage's first byte to its last have seen all of it.
  void check_crc() const {
    const bool all = run_.unbroken && run_.begin == 0 && run_.end == from_.storage_bytes;
    if (!from_.crc || !all || run_.crc == *from_.crc) return;
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the elements' CRC-32 is {:08x}, the archive says {:08x}", run_.crc, *from_.crc))
        .at(from_.storage_offset);
  }

  const StoredElements& from_;
  const TensorView& to_;
  const std::uint64_t item_;
  const std::uint64_t to_item_;
  const bool sum_;
  std::vector<Axis> axes_;
  std::uint64_t begin_ = 0;  // first wanted byte of the storage
  std::uint64_t end_ = 0;    // one past the last
  std::size_t inner_ = 0;
  std::uint64_t extent_ = 0;
  std::int64_t group_ = 1;
  bool dense_ = false;
  std::vector<std::byte> buffer_;
  bool started_ = false;
  ReadRun run_;
};

}  // namespace

void read_box(const StoredElements& from, const Selection& selection, const TensorView& to, ReadRun* run) {
  if (selection.size() != from.shape.rank() || from.strides.rank() != from.shape.rank()) {
    throw Error(ErrorCode::kInternal, "a selection and a stored tensor differ in rank");
  }
  if (to.numel() == 0) return;
  const ReadRun done = BoxReader(from, selection, to, run != nullptr).run();
  if (run != nullptr) *run = done;
}

}  // namespace cairn
