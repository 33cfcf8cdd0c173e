// Tensors as plain data: element types, shapes, boxes, borrowed views and owned buffers.
//
// Nothing here knows about torch, files or ranks. All types are values; a TensorView borrows the memory
// it points at, a Tensor shares ownership of it. Different threads may use different objects freely.
//
//   Tensor weight = Tensor::zeros(DType::kFloat32, {2, 3});
//   weight.at<float>({1, 2}) = 0.5F;
//   for (float& value : weight.values<float>()) value += 1;
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cairn {

// The element types a checkpoint can hold, named as torch names them.
enum class DType : std::uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat4E2M1FNx2,  // two 4-bit floats in a byte; an element is the byte
};
inline constexpr int kDTypeCount = 22;

std::string_view name_of(DType dtype);                        // "float32", "bfloat16", ...
std::optional<DType> dtype_from_name(std::string_view name);  // the inverse; nullopt if unknown
std::size_t item_size(DType dtype);                           // bytes per element

// The element type that a C++ type is; the 16-bit and smaller floats have none.
template <class T> inline constexpr DType kDTypeOf = T::a_tensor_has_no_such_elements;
template <> inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <> inline constexpr DType kDTypeOf<std::uint8_t> = DType::kUInt8;
template <> inline constexpr DType kDTypeOf<std::int8_t> = DType::kInt8;
template <> inline constexpr DType kDTypeOf<std::uint16_t> = DType::kUInt16;
template <> inline constexpr DType kDTypeOf<std::int16_t> = DType::kInt16;
template <> inline constexpr DType kDTypeOf<std::uint32_t> = DType::kUInt32;
template <> inline constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;
template <> inline constexpr DType kDTypeOf<std::uint64_t> = DType::kUInt64;
template <> inline constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;
template <> inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <> inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <> inline constexpr DType kDTypeOf<std::complex<float>> = DType::kComplex64;
template <> inline constexpr DType kDTypeOf<std::complex<double>> = DType::kComplex128;

// A short list of dimensions (or offsets, or strides). Up to three are kept inline, so a million of
// them is 32 MB and no allocation.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);
  Shape(std::size_t rank, std::int64_t fill);
  Shape(const Shape& other);
  Shape(Shape&& other) noexcept;
  Shape& operator=(const Shape& other);
  Shape& operator=(Shape&& other) noexcept;
  ~Shape();

  std::size_t rank() const { return rank_; }
  const std::int64_t* data() const { return rank_ <= kInline ? inline_ : heap_; }
  std::int64_t* data() { return rank_ <= kInline ? inline_ : heap_; }
  std::span<const std::int64_t> dims() const { return {data(), rank_}; }
  std::int64_t operator[](std::size_t i) const { return data()[i]; }
  std::int64_t& operator[](std::size_t i) { return data()[i]; }
  const std::int64_t* begin() const { return data(); }
  const std::int64_t* end() const { return data() + rank_; }

  // Product of the dimensions; 1 for rank 0. Throws Error(kInvalidArgument) on a negative dimension
  // and Error(kLimit) past 2^62.
  std::int64_t numel() const;

  bool operator==(const Shape& other) const;

 private:
  static constexpr std::size_t kInline = 3;
  std::uint32_t rank_ = 0;
  union {
    std::int64_t inline_[kInline];
    std::int64_t* heap_;
  };
};

std::string to_string(const Shape& shape);  // "[4096, 1024]"
std::size_t hash_of(const Shape& shape);
Shape contiguous_strides(const Shape& shape);  // row-major, in elements

// A box: the part of a tensor that starts at `offsets` and is `sizes` large.
struct Box {
  Shape offsets;
  Shape sizes;

  std::size_t rank() const { return sizes.rank(); }
  std::int64_t volume() const { return sizes.numel(); }
  bool empty() const;  // some size is 0
  bool contains(const Box& inner) const;
  bool operator==(const Box&) const = default;

  static Box whole(const Shape& shape) { return {Shape(shape.rank(), 0), shape}; }
};

// The common part of two boxes of equal rank; nullopt when it has no volume. Two boxes of rank 0 meet.
std::optional<Box> intersect(const Box& a, const Box& b);
std::string to_string(const Box& box);  // "[0:4, 8:16]"

// What is wrong with a set of boxes that ought to tile `shape`.
struct CoverProblem {
  enum class Kind { kOutOfBounds, kOverlap, kHole };
  Kind kind;
  std::size_t first = 0;     // index of the offending box
  std::size_t second = 0;    // the box it overlaps
  std::int64_t missing = 0;  // kHole: elements that no box covers
  std::string text;          // one line for people
};

// nullopt when the boxes lie inside `shape`, do not overlap, and together cover it. Boxes without
// volume are ignored, but must lie in bounds. Linear in the number of boxes when all is well: a sum of
// random weights tells, wrong once in 2^58 times. What is broken takes at most n log^(d-1) n for boxes
// cut in d dimensions, or is an Error(kLimit) where that is thousands of steps a box.
std::optional<CoverProblem> find_cover_problem(const Shape& shape, std::span<const Box> boxes);

// Where a tensor's memory lives.
struct Device {
  enum class Kind : std::uint8_t { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;
  bool is_cpu() const { return kind == Kind::kCpu; }
  bool operator==(const Device&) const = default;
};

// A tensor in somebody else's memory. Strides count elements and may be zero or negative as long as
// every element lies in memory the owner keeps alive.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;
  Shape strides;
  Device device;

  static TensorView contiguous(void* data, DType dtype, Shape shape);

  std::int64_t numel() const { return shape.numel(); }
  std::uint64_t bytes() const;              // numel x item size
  bool is_contiguous() const;               // row-major and dense
  TensorView narrow(const Box& box) const;  // the same memory, a part of it; checks bounds

  // One element, and all of them, row by row, of a contiguous tensor. Error(kInvalidArgument) for an index
  // out of bounds, a T that is not what the elements are, memory of a device.
  template <class T> T& at(const Shape& index) const {
    return *reinterpret_cast<T*>(element(index, kDTypeOf<T>));
  }
  template <class T> std::span<T> values() const {
    return {reinterpret_cast<T*>(elements(kDTypeOf<T>)), static_cast<std::size_t>(numel())};
  }

 private:
  std::byte* element(const Shape& index, DType expected) const;
  std::byte* elements(DType expected) const;
};

// A tensor that keeps its memory alive. Memory allocated here is 4 KiB aligned. Copies share it.
class Tensor {
 public:
  Tensor() = default;
  // Owns nothing itself: `owner` is whatever must live as long as the view.
  Tensor(TensorView view, std::shared_ptr<void> owner);

  static Tensor empty(DType dtype, Shape shape);  // memory not initialised
  static Tensor zeros(DType dtype, Shape shape);

  const TensorView& view() const { return view_; }
  std::span<std::byte> bytes();  // contiguous tensors only
  std::span<const std::byte> bytes() const;
  // As of a TensorView.
  template <class T> T& at(const Shape& index) { return view_.at<T>(index); }
  template <class T> const T& at(const Shape& index) const { return view_.at<T>(index); }
  template <class T> std::span<T> values() { return view_.values<T>(); }
  template <class T> std::span<const T> values() const { return view_.values<T>(); }
  const std::shared_ptr<void>& owner() const { return owner_; }

 private:
  TensorView view_;
  std::shared_ptr<void> owner_;
};

// Copies every element of `from` to the same place in `to`; shapes must be equal, memory must not
// overlap. Element types may differ: values convert as torch's copy_ converts them (floats round to
// nearest even, floats to integers truncate, complex to real drops the imaginary part, anything to
// bool is "not zero"). Both must be on the CPU.
void copy(const TensorView& from, const TensorView& to);

}  // namespace cairn
