// Strided views as the copies that a device can make.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/device.h"
#include "cairn/tensor.h"
#include "tensor/strided.h"

namespace cairn {

// The copies that bring every element of one view to its place in another of the same shape and element type,
// wherever the two are. Few when the steps of both views follow one another; one for each row when they do
// not.
class RowCopies {
 public:
  // The views have elements. No element of `to` lies on another.
  RowCopies(const TensorView& from, const TensorView& to);

  std::uint64_t count() const;
  std::uint64_t row() const { return copy_.row; }  // bytes that lie together in both views

  template <class F> void for_each(const F& each) const {
    cairn::for_each(outer_, outer_.size(), copy_.from, copy_.to, [&](const std::byte* from, std::byte* to) {
      DeviceCopy copy = copy_;
      copy.from = from;
      copy.to = to;
      each(copy);
    });
  }

 private:
  DeviceCopy copy_;
  std::vector<Loop> outer_;
};

// From the first byte of a view's elements to the last. A view with elements.
struct ByteExtent {
  const std::byte* first = nullptr;
  std::uint64_t bytes = 0;
};
ByteExtent extent_of(const TensorView& view);

// Whether elements that lie close to each other, but in short rows or at steps that no copy knows, are
// brought to the CPU sooner with all that lies between them. A view with elements.
bool is_better_gathered(const TensorView& view);

}  // namespace cairn
