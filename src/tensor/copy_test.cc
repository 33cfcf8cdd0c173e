#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "cairn/error.h"
#include "cairn/tensor.h"
#include "tensor/cast.h"
#include "tensor/strided.h"
#include "tensor/transpose.h"
#include "testing/errors.h"

namespace cairn {
namespace {

// Copies element by element, straight from the definition of strides.
void copy_one_by_one(const TensorView& from, const TensorView& to) {
  const Shape weights = contiguous_strides(to.shape);
  for (std::int64_t i = 0; i < to.numel(); ++i) {
    std::int64_t from_at = 0;
    std::int64_t to_at = 0;
    for (std::size_t d = 0; d < to.shape.rank(); ++d) {
      const std::int64_t index = i / weights[d] % to.shape[d];
      from_at += index * from.strides[d];
      to_at += index * to.strides[d];
    }
    convert(from.data + from_at * static_cast<std::int64_t>(item_size(from.dtype)), from.dtype,
            to.data + to_at * static_cast<std::int64_t>(item_size(to.dtype)), to.dtype, 1);
  }
}

// A view into fresh memory: dimensions in a random order, with gaps, offsets and negative strides.
class RandomView {
 public:
  RandomView(std::mt19937& random, DType dtype, const Shape& shape, bool may_repeat) {
    std::vector<std::size_t> order(shape.rank());
    std::iota(order.begin(), order.end(), 0);
    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    std::int64_t reach = 1 + static_cast<std::int64_t>(random() % 8 == 0);
    std::int64_t first = 0;
    view_.strides = Shape(shape.rank(), 0);
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::size_t d = order[i];
      if (may_repeat && random() % 8 == 0) continue;  // stride 0: one element for all
      view_.strides[d] = reach;
      reach *= shape[d] + static_cast<std::int64_t>(random() % 4 == 0);
      if (random() % 4 == 0) {
        first += (shape[d] - 1) * view_.strides[d];
        view_.strides[d] = -view_.strides[d];
      }
    }
    const std::int64_t size = static_cast<std::int64_t>(item_size(dtype));
    const std::int64_t unaligned = static_cast<std::int64_t>(random() % 2);
    memory_.resize(static_cast<std::size_t>(reach * size + unaligned));
    for (std::byte& byte : memory_) byte = static_cast<std::byte>(random() & 0x3f);
    view_.data = memory_.data() + first * size + unaligned;
    view_.dtype = dtype;
    view_.shape = shape;
  }
  RandomView(const RandomView&) = delete;

  const TensorView& view() const { return view_; }
  std::vector<std::byte>& memory() { return memory_; }

 private:
  std::vector<std::byte> memory_;
  TensorView view_;
};

void expect_copies_like_one_by_one(unsigned seed, DType from_type, DType to_type, const Shape& shape) {
  std::mt19937 random(seed);
  RandomView from(random, from_type, shape, true);
  RandomView to(random, to_type, shape, false);
  const std::vector<std::byte> before = to.memory();
  copy_one_by_one(from.view(), to.view());
  const std::vector<std::byte> want = to.memory();
  std::copy(before.begin(), before.end(), to.memory().begin());
  copy(from.view(), to.view());
  ASSERT_EQ(to.memory(), want) << "seed " << seed << ", " << name_of(from_type) << " to " << name_of(to_type)
                               << ", shape " << to_string(shape) << ", strides "
                               << to_string(from.view().strides) << " to " << to_string(to.view().strides);
}

TEST(Copy, OfEveryItemSizeAgreesWithOneByOneOnRandomViews) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    Shape shape(random() % 5, 0);
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      shape[d] = static_cast<std::int64_t>(1 + random() % (shape.rank() <= 2 ? 90 : 12));
    }
    for (const DType dtype :
         {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kInt64, DType::kComplex128}) {
      expect_copies_like_one_by_one(seed, dtype, dtype, shape);
    }
  }
}

TEST(Copy, WithConversionAgreesWithOneByOneOnRandomViews) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    Shape shape(random() % 5, 0);
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      shape[d] = static_cast<std::int64_t>(1 + random() % (shape.rank() <= 2 ? 150 : 14));
    }
    const auto from = static_cast<DType>(random() % (kDTypeCount - 1));
    const auto to = static_cast<DType>(random() % (kDTypeCount - 1));
    expect_copies_like_one_by_one(seed, from, to, shape);
  }
}

TEST(Copy, TransposesMatricesOfEverySizeRoundATile) {
  for (const std::size_t item : {1, 2, 4, 8, 16}) {
    const auto tile = static_cast<std::int64_t>(64 / item);
    for (const std::int64_t rows : {std::int64_t{1}, tile - 1, tile, 2 * tile, 2 * tile + 3, 300L}) {
      for (const std::int64_t columns : {std::int64_t{1}, tile - 1, tile, 3 * tile, 3 * tile + 1, 260L}) {
        const auto size = static_cast<std::int64_t>(item);
        std::vector<std::byte> from(static_cast<std::size_t>(rows * columns * size));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 251);
        std::vector<std::byte> to(from.size());
        transpose({from.data(), to.data(), rows, columns, columns * size, rows * size}, item);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns; ++c) {
            ASSERT_EQ(std::memcmp(&to[static_cast<std::size_t>((c * rows + r) * size)],
                                  &from[static_cast<std::size_t>((r * columns + c) * size)], item),
                      0)
                << item << ": " << rows << " x " << columns << " at " << r << ", " << c;
          }
        }
      }
    }
  }
}

TEST(Copy, OfAScalarMovesOneElement) {
  float from = 2.5F;
  double to = 0;
  copy(TensorView::contiguous(&from, DType::kFloat32, {}), TensorView::contiguous(&to, DType::kFloat64, {}));
  EXPECT_EQ(to, 2.5);
}

TEST(Copy, OfNothingNeedsNoMemory) {
  const TensorView none = TensorView::contiguous(nullptr, DType::kFloat32, {3, 0});
  EXPECT_NO_THROW(copy(none, none));
}

TEST(Copy, RefusesWhatItCannotDo) {
  std::vector<std::byte> memory(64);
  const TensorView view = TensorView::contiguous(memory.data(), DType::kFloat32, {2, 3});
  TensorView other = TensorView::contiguous(memory.data() + 32, DType::kFloat32, {3, 2});
  EXPECT_EQ(code_of([&] { copy(view, other); }), ErrorCode::kInvalidArgument);
  other = TensorView::contiguous(memory.data() + 32, DType::kFloat4E2M1FNx2, {2, 3});
  EXPECT_EQ(code_of([&] { copy(view, other); }), ErrorCode::kUnsupported);
  other = view;
  other.device.kind = Device::Kind::kCuda;
  EXPECT_EQ(code_of([&] { copy(view, other); }), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([&] { copy(other, view); }), ErrorCode::kUnsupported);
  other = view;
  other.data = nullptr;
  EXPECT_EQ(code_of([&] { copy(view, other); }), ErrorCode::kInvalidArgument);
  other = view;
  other.strides = {1};
  EXPECT_EQ(code_of([&] { copy(other, view); }), ErrorCode::kInvalidArgument);
}

TEST(LoopNest, MergesWhatIsDenseInBoth) {
  std::vector<std::byte> memory(4096);
  const TensorView view = TensorView::contiguous(memory.data(), DType::kInt16, {2, 1, 3, 4});
  EXPECT_EQ(LoopNest::over(view, view).loops, (std::vector<Loop>{{24, 2, 2}}));
}

TEST(LoopNest, KeepsARowsGapAndFollowsTheDestination) {
  std::vector<std::byte> memory(4096);
  TensorView from = TensorView::contiguous(memory.data(), DType::kInt16, {5, 8});
  const TensorView part = from.narrow({{0, 0}, {5, 4}});
  const TensorView dense = TensorView::contiguous(memory.data() + 2048, DType::kInt16, {5, 4});
  EXPECT_EQ(LoopNest::over(part, dense).loops, (std::vector<Loop>{{5, 16, 8}, {4, 2, 2}}));
  TensorView turned = dense;
  turned.strides = {1, 5};
  EXPECT_EQ(LoopNest::over(part, turned).loops, (std::vector<Loop>{{4, 2, 10}, {5, 16, 2}}));
}

TEST(LoopNest, TurnsNegativeStridesRound) {
  std::vector<std::byte> memory(64);
  TensorView view = TensorView::contiguous(memory.data() + 28, DType::kInt32, {8});
  view.strides = {-1};
  const LoopNest nest = LoopNest::over(view, view);
  EXPECT_EQ(nest.loops, (std::vector<Loop>{{8, 4, 4}}));
  EXPECT_EQ(nest.to, memory.data());
}

}  // namespace
}  // namespace cairn
