#include "cairn/tensor.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/checked.h"

namespace cairn {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 47;  // what a process can address

// A place for tensors without elements, so that even their data may go to memcpy.
alignas(kPage) std::byte empty_place[1];

// Large buffers ask for huge pages: first touch then takes one fault for 2 MiB.
std::shared_ptr<void> allocate(std::uint64_t bytes) {
  if (bytes == 0) return {static_cast<void*>(empty_place), [](void*) {}};
  const bool large = bytes >= 4 * kHugePage;
  const std::size_t alignment = large ? kHugePage : kPage;
  void* memory = bytes > kMostBytes ? nullptr : std::aligned_alloc(alignment, align_up(bytes, alignment));
  if (memory == nullptr) {
    throw Error(ErrorCode::kLimit, fmt::format("cannot allocate {} bytes for a tensor", bytes))
        .with_errno(ENOMEM);
  }
  if (large) (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  return {memory, [](void* p) { std::free(p); }};
}

void check_is_contiguous(const TensorView& view) {
  if (view.is_contiguous()) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a tensor of shape {} and strides {} is not contiguous", to_string(view.shape),
                          to_string(view.strides)));
}

void check_elements(const TensorView& view, DType expected) {
  if (!view.device.is_cpu())
    throw Error(ErrorCode::kInvalidArgument, "the tensor is in a device's memory: copy it to the CPU first");
  if (view.dtype != expected)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the tensor holds {}, and is asked for {}",
                                                         name_of(view.dtype), name_of(expected)));
  // A complex number is two numbers.
  if (reinterpret_cast<std::uintptr_t>(view.data) % std::min<std::size_t>(item_size(expected), 8) != 0)
    throw Error(ErrorCode::kInvalidArgument, "the tensor's memory is not aligned for its elements");
}

}  // namespace

std::byte* TensorView::element(const Shape& index, DType expected) const {
  check_elements(*this, expected);
  bool inside = index.rank() == shape.rank();
  std::int64_t at = 0;
  for (std::size_t dim = 0; inside && dim < shape.rank(); ++dim) {
    inside = index[dim] >= 0 && index[dim] < shape[dim];
    at += index[dim] * strides[dim];
  }
  if (!inside)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no element {} in a tensor of shape {}",
                                                         to_string(index), to_string(shape)));
  return data + at * static_cast<std::int64_t>(item_size(dtype));
}

std::byte* TensorView::elements(DType expected) const {
  check_elements(*this, expected);
  check_is_contiguous(*this);
  return data;
}

TensorView TensorView::contiguous(void* data, DType dtype, Shape shape) {
  TensorView view;
  view.data = static_cast<std::byte*>(data);
  view.dtype = dtype;
  view.strides = contiguous_strides(shape);
  view.shape = std::move(shape);
  return view;
}

std::uint64_t TensorView::bytes() const {
  return checked_mul<std::uint64_t>(static_cast<std::uint64_t>(numel()), item_size(dtype));
}

bool TensorView::is_contiguous() const {
  if (numel() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape.rank(); i-- > 0;) {
    if (shape[i] == 1) continue;  // never stepped over: any stride will do
    if (strides[i] != expected) return false;
    expected *= shape[i];  // at most numel()
  }
  return true;
}

TensorView TensorView::narrow(const Box& box) const {
  if (box.offsets.rank() != shape.rank() || box.sizes.rank() != shape.rank() ||
      !Box::whole(shape).contains(box)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("box {} does not lie in shape {}", to_string(box), to_string(shape)));
  }
  TensorView part = *this;
  part.shape = box.sizes;
  // The first element of an empty part need not exist, so its address is not computed.
  if (data == nullptr || box.empty()) return part;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    elements = checked_add(elements, checked_mul(box.offsets[i], strides[i]));
  }
  part.data += checked_mul(elements, static_cast<std::int64_t>(item_size(dtype)));
  return part;
}

Tensor::Tensor(TensorView view, std::shared_ptr<void> owner)
    : view_(std::move(view)), owner_(std::move(owner)) {}

Tensor Tensor::empty(DType dtype, Shape shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, std::move(shape));
  std::shared_ptr<void> memory = allocate(view.bytes());
  view.data = static_cast<std::byte*>(memory.get());
  return {std::move(view), std::move(memory)};
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  Tensor tensor = empty(dtype, std::move(shape));
  std::memset(tensor.view_.data, 0, tensor.view_.bytes());
  return tensor;
}

std::span<std::byte> Tensor::bytes() {
  check_is_contiguous(view_);
  return {view_.data, view_.bytes()};
}

std::span<const std::byte> Tensor::bytes() const {
  check_is_contiguous(view_);
  return {view_.data, view_.bytes()};
}

}  // namespace cairn
