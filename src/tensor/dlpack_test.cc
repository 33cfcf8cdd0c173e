#include "cairn/dlpack.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "cairn/error.h"
#include "testing/errors.h"

namespace cairn {
namespace {

// A tensor of another library that counts how often its deleter is called.
struct Foreign {
  std::vector<float> memory = std::vector<float>(24);
  std::vector<std::int64_t> shape{2, 3, 4};
  std::vector<std::int64_t> strides{12, 4, 1};
  int deleted = 0;
  DLManagedTensor managed{};

  Foreign() {
    managed.dl_tensor = {memory.data(), {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape.data(), strides.data(), 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
  }

  ErrorCode refusal() {
    const ErrorCode code = code_of([&] { from_dlpack(&managed); });
    EXPECT_EQ(deleted, 0) << "what is refused stays with the caller";
    return code;
  }
};

TEST(DLPack, TensorBorrowsTheMemoryAndDeletesOnce) {
  Foreign foreign;
  {
    const Tensor tensor = from_dlpack(&foreign.managed);
    const Tensor copy = tensor;
    EXPECT_EQ(static_cast<void*>(copy.view().data), foreign.memory.data());
    EXPECT_EQ(copy.view().shape, Shape({2, 3, 4}));
    EXPECT_EQ(copy.view().dtype, DType::kFloat32);
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, NullStridesAreRowMajor) {
  Foreign foreign;
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).view().strides, Shape({12, 4, 1}));
}

TEST(DLPack, ByteOffsetMovesTheFirstElement) {
  Foreign foreign;
  foreign.shape = {2};
  foreign.managed.dl_tensor.ndim = 1;
  foreign.managed.dl_tensor.byte_offset = 8;
  EXPECT_EQ(static_cast<void*>(from_dlpack(&foreign.managed).view().data), foreign.memory.data() + 2);
}

TEST(DLPack, NullDeleterIsAllowed) {
  Foreign foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_NO_THROW(from_dlpack(&foreign.managed));
}

TEST(DLPack, NullDataIsFineWithoutElementsOnly) {
  Foreign foreign;
  foreign.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(foreign.refusal(), ErrorCode::kInvalidArgument);
  foreign.shape[1] = 0;
  EXPECT_EQ(from_dlpack(&foreign.managed).view().numel(), 0);
}

TEST(DLPack, ScalarNeedsNoShape) {
  Foreign foreign;
  foreign.managed.dl_tensor.ndim = 0;
  foreign.managed.dl_tensor.shape = nullptr;
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).view().numel(), 1);
}

TEST(DLPack, NonsenseIsAnInvalidArgument) {
  EXPECT_EQ(code_of([] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)); }),
            ErrorCode::kInvalidArgument);
  Foreign negative;
  negative.shape[0] = -2;
  EXPECT_EQ(negative.refusal(), ErrorCode::kInvalidArgument);
  Foreign ranks;
  ranks.managed.dl_tensor.ndim = -1;
  EXPECT_EQ(ranks.refusal(), ErrorCode::kInvalidArgument);
  ranks.managed.dl_tensor.ndim = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(ranks.refusal(), ErrorCode::kInvalidArgument);
  Foreign shapeless;
  shapeless.managed.dl_tensor.shape = nullptr;
  EXPECT_EQ(shapeless.refusal(), ErrorCode::kInvalidArgument);
}

TEST(DLPack, HugeShapeIsALimitError) {
  Foreign foreign;
  foreign.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40, 1};
  foreign.managed.dl_tensor.shape = foreign.shape.data();
  EXPECT_EQ(foreign.refusal(), ErrorCode::kLimit);
}

TEST(DLPack, UnknownTypesAndDevicesAreUnsupported) {
  for (const DLDataType dtype :
       {DLDataType{kDLFloat, 32, 4}, DLDataType{kDLFloat, 80, 1}, DLDataType{3, 64, 1}, DLDataType{7, 8, 1},
        DLDataType{kDLFloat4_e2m1fn, 4, 1}, DLDataType{99, 8, 1}}) {
    Foreign foreign;
    foreign.managed.dl_tensor.dtype = dtype;
    EXPECT_EQ(foreign.refusal(), ErrorCode::kUnsupported);
  }
  Foreign elsewhere;
  elsewhere.managed.dl_tensor.device = {8, 0};
  EXPECT_EQ(elsewhere.refusal(), ErrorCode::kUnsupported);
}

TEST(DLPack, PinnedMemoryCountsAsCpuAndCudaKeepsItsIndex) {
  Foreign pinned;
  pinned.managed.dl_tensor.device = {kDLCUDAHost, 1};
  EXPECT_EQ(from_dlpack(&pinned.managed).view().device, (Device{Device::Kind::kCpu, 0}));
  Foreign cuda;
  cuda.managed.dl_tensor.device = {kDLCUDA, 3};
  EXPECT_EQ(from_dlpack(&cuda.managed).view().device, (Device{Device::Kind::kCuda, 3}));
}

TEST(DLPack, EveryTypeGoesOutAndComesBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor tensor = Tensor::zeros(dtype, {2, 3, 4, 5});
    const Tensor old = from_dlpack(to_dlpack(tensor));
    const Tensor versioned = from_dlpack(to_dlpack_versioned(tensor));
    for (const Tensor& back : {old, versioned}) {
      EXPECT_EQ(back.view().dtype, dtype) << name_of(dtype);
      EXPECT_EQ(back.view().data, tensor.view().data);
      EXPECT_EQ(back.view().shape, tensor.view().shape);
      EXPECT_EQ(back.view().strides, tensor.view().strides);
    }
  }
}

TEST(DLPack, ExportKeepsTheMemoryUntilItsDeleter) {
  DLManagedTensor* managed = nullptr;
  std::weak_ptr<void> memory;
  {
    const Tensor tensor = Tensor::zeros(DType::kBFloat16, {7});
    memory = tensor.owner();
    managed = to_dlpack(tensor);
  }
  EXPECT_FALSE(memory.expired());
  EXPECT_EQ(managed->dl_tensor.dtype.code, kDLBfloat);
  EXPECT_EQ(managed->dl_tensor.shape[0], 7);
  managed->deleter(managed);
  EXPECT_TRUE(memory.expired());
}

TEST(DLPack, VersionedExportSaysItsVersionAndAnUnknownMajorIsRefused) {
  DLManagedTensorVersioned* managed = to_dlpack_versioned(Tensor::zeros(DType::kBool, {1}));
  EXPECT_EQ(managed->version.major, 1U);
  EXPECT_EQ(managed->flags, 0U);
  managed->version.major = 2;
  EXPECT_EQ(code_of([&] { from_dlpack(managed); }), ErrorCode::kUnsupported);
  managed->version = {1, 9};
  EXPECT_NO_THROW(from_dlpack(managed));
}

}  // namespace
}  // namespace cairn
