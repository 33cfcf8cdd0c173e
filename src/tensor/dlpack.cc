#include "cairn/dlpack.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "cairn/error.h"

namespace cairn {
namespace {

constexpr std::int32_t kMostDimensions = 64;

struct DlpackType {
  DType dtype;
  DLDataType dl;
};

constexpr DlpackType kDlpackTypes[] = {
    {DType::kBool, {kDLBool, 8, 1}},
    {DType::kUInt8, {kDLUInt, 8, 1}},
    {DType::kInt8, {kDLInt, 8, 1}},
    {DType::kUInt16, {kDLUInt, 16, 1}},
    {DType::kInt16, {kDLInt, 16, 1}},
    {DType::kUInt32, {kDLUInt, 32, 1}},
    {DType::kInt32, {kDLInt, 32, 1}},
    {DType::kUInt64, {kDLUInt, 64, 1}},
    {DType::kInt64, {kDLInt, 64, 1}},
    {DType::kFloat16, {kDLFloat, 16, 1}},
    {DType::kBFloat16, {kDLBfloat, 16, 1}},
    {DType::kFloat32, {kDLFloat, 32, 1}},
    {DType::kFloat64, {kDLFloat, 64, 1}},
    {DType::kComplex32, {kDLComplex, 32, 1}},
    {DType::kComplex64, {kDLComplex, 64, 1}},
    {DType::kComplex128, {kDLComplex, 128, 1}},
    {DType::kFloat8E4M3FN, {kDLFloat8_e4m3fn, 8, 1}},
    {DType::kFloat8E4M3FNUZ, {kDLFloat8_e4m3fnuz, 8, 1}},
    {DType::kFloat8E5M2, {kDLFloat8_e5m2, 8, 1}},
    {DType::kFloat8E5M2FNUZ, {kDLFloat8_e5m2fnuz, 8, 1}},
    {DType::kFloat8E8M0FNU, {kDLFloat8_e8m0fnu, 8, 1}},
    {DType::kFloat4E2M1FNx2, {kDLFloat4_e2m1fn, 4, 2}},
};
static_assert(std::size(kDlpackTypes) == kDTypeCount);

DType dtype_of(const DLDataType& dl) {
  for (const DlpackType& row : kDlpackTypes) {
    if (row.dl.code == dl.code && row.dl.bits == dl.bits && row.dl.lanes == dl.lanes) return row.dtype;
  }
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("DLPack type code {} with {} bits and {} lanes is not known", dl.code, dl.bits, dl.lanes));
}

DLDataType dl_type_of(DType dtype) {
  for (const DlpackType& row : kDlpackTypes) {
    if (row.dtype == dtype) return row.dl;
  }
  throw Error(ErrorCode::kUnsupported, fmt::format("DLPack has no type for {}", name_of(dtype)));
}

Device device_of(const DLDevice& dl) {
  switch (dl.device_type) {
    case kDLCPU:
    case kDLCUDAHost: return {Device::Kind::kCpu, 0};
    case kDLCUDA:
    case kDLCUDAManaged: return {Device::Kind::kCuda, dl.device_id};
    default:
      throw Error(ErrorCode::kUnsupported, fmt::format("DLPack device type {} is not known", dl.device_type));
  }
}

DLDevice dl_device_of(const Device& device) { return {device.is_cpu() ? kDLCPU : kDLCUDA, device.index}; }

TensorView view_of(const DLTensor& dl) {
  if (dl.ndim < 0 || dl.ndim > kMostDimensions) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a DLPack tensor has {} dimensions, expected 0 to {}", dl.ndim, kMostDimensions));
  }
  if (dl.ndim > 0 && dl.shape == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a DLPack tensor of {} dimensions has no shape", dl.ndim));
  }
  TensorView view;
  const auto rank = static_cast<std::size_t>(dl.ndim);
  view.shape = Shape(std::span(static_cast<const std::int64_t*>(dl.shape), rank));
  view.dtype = dtype_of(dl.dtype);
  view.device = device_of(dl.device);
  (void)view.bytes();  // refuses negative dimensions and sizes past 2^62
  view.strides = dl.strides == nullptr ? contiguous_strides(view.shape)
                                       : Shape(std::span(static_cast<const std::int64_t*>(dl.strides), rank));
  if (dl.data != nullptr) {
    view.data = static_cast<std::byte*>(dl.data) + dl.byte_offset;
  } else if (view.numel() != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a DLPack tensor of shape {} has no data", to_string(view.shape)));
  }
  return view;
}

template <class Managed> Tensor adopt(Managed* managed) {
  TensorView view = view_of(managed->dl_tensor);
  std::shared_ptr<void> owner(managed, [](void* self) {
    auto* owned = static_cast<Managed*>(self);
    if (owned->deleter != nullptr) owned->deleter(owned);
  });
  return {std::move(view), std::move(owner)};
}

void check_not_null(const void* managed) {
  if (managed == nullptr) throw Error(ErrorCode::kInvalidArgument, "the DLPack tensor is a null pointer");
}

// What an exported struct points into; it lives from to_dlpack to the deleter.
template <class Managed> struct Exported {
  explicit Exported(const Tensor& tensor)
      : kept(tensor), shape(tensor.view().shape), strides(tensor.view().strides) {
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->manager_ctx); };
    const TensorView& view = tensor.view();
    managed.dl_tensor = {view.data,
                         dl_device_of(view.device),
                         static_cast<std::int32_t>(shape.rank()),
                         dl_type_of(view.dtype),
                         shape.data(),
                         strides.data(),
                         0};
  }

  Managed managed{};
  Tensor kept;
  Shape shape;
  Shape strides;
};

}  // namespace

Tensor from_dlpack(DLManagedTensor* managed) {
  check_not_null(managed);
  return adopt(managed);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  check_not_null(managed);
  // Minor versions only add; a new major one may have moved every field but the version.
  if (managed->version.major != kDLPackVersion.major) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("DLPack version {}.{} is not known, expected {}.x", managed->version.major,
                            managed->version.minor, kDLPackVersion.major));
  }
  return adopt(managed);
}

DLManagedTensor* to_dlpack(const Tensor& tensor) {
  return &std::make_unique<Exported<DLManagedTensor>>(tensor).release()->managed;
}

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor) {
  DLManagedTensorVersioned* managed =
      &std::make_unique<Exported<DLManagedTensorVersioned>>(tensor).release()->managed;
  managed->version = kDLPackVersion;
  return managed;
}

}  // namespace cairn
