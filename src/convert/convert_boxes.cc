#include "convert/convert_write.h"

namespace cairn {
namespace {

// Cuts a range of elements below one axis; the offsets and sizes of the axes before it are in `box`.
class Cutter {
 public:
  Cutter(const Shape& shape, const EachBox& each)
      : shape_(shape), steps_(contiguous_strides(shape)), box_(Box::whole(shape)), each_(each) {}

  // `base`: the element at which the part below the axis begins.
  void cut(std::size_t axis, std::int64_t base, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    if (axis == shape_.rank()) return each_(box_, base);
    const std::int64_t step = steps_[axis];
    const std::int64_t first = begin / step, last = end / step;
    if (first == last || begin % step != 0) {
      const std::int64_t until = std::min(end, (first + 1) * step);
      one(axis, base, first, begin, until);
      return cut(axis, base, until, end);
    }
    whole(axis, base, first, last);
    if (end % step != 0) one(axis, base, last, last * step, end);
  }

 private:
  // A part of the elements under one position of the axis.
  void one(std::size_t axis, std::int64_t base, std::int64_t at, std::int64_t begin, std::int64_t end) {
    const std::int64_t start = at * steps_[axis];
    box_.offsets[axis] = at;
    box_.sizes[axis] = 1;
    cut(axis + 1, base + start, begin - start, end - start);
  }

  void whole(std::size_t axis, std::int64_t base, std::int64_t first, std::int64_t last) {
    box_.offsets[axis] = first;
    box_.sizes[axis] = last - first;
    for (std::size_t d = axis + 1; d < shape_.rank(); ++d) {
      box_.offsets[d] = 0;
      box_.sizes[d] = shape_[d];
    }
    each_(box_, base + first * steps_[axis]);
  }

  const Shape& shape_;
  const Shape steps_;
  Box box_;
  const EachBox& each_;
};

}  // namespace

void for_each_box(const Shape& shape, std::int64_t begin, std::int64_t end, const EachBox& each) {
  Cutter(shape, each).cut(0, 0, begin, end);
}

}  // namespace cairn
