#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/seeded_hash.h"
#include "cairn/tensor.h"

namespace cairn {

namespace {
constexpr std::int64_t kMostElements = std::int64_t{1} << 62;
}

Shape::Shape(std::size_t rank, std::int64_t fill) : rank_(static_cast<std::uint32_t>(rank)) {
  if (rank > UINT32_MAX) throw Error(ErrorCode::kLimit, "a shape has more than 2^32 dimensions");
  if (rank > kInline) heap_ = new std::int64_t[rank];
  std::fill_n(data(), rank, fill);
}

Shape::Shape(std::span<const std::int64_t> dims) : Shape(dims.size(), 0) {
  std::copy(dims.begin(), dims.end(), data());
}

Shape::Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(const Shape& other) : Shape(other.dims()) {}

Shape::Shape(Shape&& other) noexcept { *this = std::move(other); }

Shape& Shape::operator=(const Shape& other) {
  if (this != &other) *this = Shape(other);
  return *this;
}

Shape& Shape::operator=(Shape&& other) noexcept {
  if (this == &other) return *this;
  if (rank_ > kInline) delete[] heap_;
  rank_ = std::exchange(other.rank_, 0);
  if (rank_ > kInline) {
    heap_ = other.heap_;
  } else {
    std::copy_n(other.inline_, rank_, inline_);
  }
  return *this;
}

Shape::~Shape() {
  if (rank_ > kInline) delete[] heap_;
}

std::int64_t Shape::numel() const {
  bool has_zero = false;
  for (const std::int64_t dim : *this) {
    if (dim < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("shape {} has a negative dimension", to_string(*this)));
    }
    has_zero = has_zero || dim == 0;
  }
  if (has_zero) return 0;
  std::int64_t product = 1;
  for (const std::int64_t dim : *this) {
    if (__builtin_mul_overflow(product, dim, &product) || product > kMostElements) {
      throw Error(ErrorCode::kLimit, fmt::format("shape {} has more than 2^62 elements", to_string(*this)));
    }
  }
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::size_t hash_of(const Shape& shape) {
  std::uint64_t hash = kHashSeed.start + shape.rank();
  for (const std::int64_t dim : shape) hash = mix_hash(hash, static_cast<std::uint64_t>(dim));
  return hash;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.rank(), 1);
  for (std::size_t i = shape.rank(); i-- > 1;) {
    // As in torch, a dimension of 0 counts as 1 here.
    strides[i - 1] = checked_mul(strides[i], std::max<std::int64_t>(shape[i], 1));
  }
  return strides;
}

}  // namespace cairn
