// DLPack: tensors of other libraries in, and cairn's tensors out, without a copy.
//
// The structs are DLPack's C ABI (version 1.1), laid out as its specification says, under our namespace;
// a pointer to the dlpack.h struct of the same name may be cast to them.
#pragma once

#include <cstdint>

#include "cairn/tensor.h"

namespace cairn {

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};
inline constexpr DLPackVersion kDLPackVersion{1, 1};

inline constexpr std::int32_t kDLCPU = 1;
inline constexpr std::int32_t kDLCUDA = 2;
inline constexpr std::int32_t kDLCUDAHost = 3;  // pinned: the CPU may use it
inline constexpr std::int32_t kDLCUDAManaged = 13;

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

inline constexpr std::uint8_t kDLInt = 0;
inline constexpr std::uint8_t kDLUInt = 1;
inline constexpr std::uint8_t kDLFloat = 2;
inline constexpr std::uint8_t kDLBfloat = 4;
inline constexpr std::uint8_t kDLComplex = 5;
inline constexpr std::uint8_t kDLBool = 6;
inline constexpr std::uint8_t kDLFloat8_e4m3fn = 10;
inline constexpr std::uint8_t kDLFloat8_e4m3fnuz = 11;
inline constexpr std::uint8_t kDLFloat8_e5m2 = 12;
inline constexpr std::uint8_t kDLFloat8_e5m2fnuz = 13;
inline constexpr std::uint8_t kDLFloat8_e8m0fnu = 14;
inline constexpr std::uint8_t kDLFloat4_e2m1fn = 17;  // two lanes of 4 bits, as torch has it

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;  // of one lane
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;      // in elements; null when row-major and dense
  std::uint64_t byte_offset;  // from `data` to the first element
};

// Whoever owns one calls its deleter, unless that is null, exactly once.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

inline constexpr std::uint64_t kDLFlagReadOnly = 1;
inline constexpr std::uint64_t kDLFlagIsCopied = 2;

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

// The same memory as a Tensor, whose owner calls the deleter when its last copy goes. When this throws,
// nothing was taken: the caller still owns `managed`. Error(kInvalidArgument) for a struct that makes no
// sense, Error(kUnsupported) for a type, device or major version that is not known here. A read-only
// flag is not kept: who writes to tensors looks at it first.
Tensor from_dlpack(DLManagedTensor* managed);
Tensor from_dlpack(DLManagedTensorVersioned* managed);

// The tensor for another library. The caller owns the result and calls its deleter; until then the
// tensor's memory lives.
DLManagedTensor* to_dlpack(const Tensor& tensor);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor);

}  // namespace cairn
