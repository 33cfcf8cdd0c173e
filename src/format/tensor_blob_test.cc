#include "format/tensor_blob.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/source.h"
#include "cairn/state_dict.h"
#include "format/torch_file.h"

namespace cairn {
namespace tensor_blob_test {

Tensor counted(DType dtype, Shape shape) {
  Tensor tensor = Tensor::empty(dtype, std::move(shape));
  std::uint8_t n = 0;
  for (std::byte& b : tensor.bytes()) b = static_cast<std::byte>(n++);
  return tensor;
}

std::string blob_of(const TensorView& view) {
  TensorBlob blob(view);
  std::string elements;
  if (blob.memory()) {
    elements = as_text(*blob.memory());
  } else {
    const Tensor packed = Tensor::empty(view.dtype, view.shape);
    copy(view, packed.view());
    elements = as_text(packed.bytes());
  }
  EXPECT_EQ(blob.head().size() % 64, 0U);
  std::string whole = blob.head() + elements + blob.tail(crc32(as_bytes(elements)));
  EXPECT_LE(whole.size(), blob.most_bytes());
  return whole;
}

std::string torch_file_of(const Tensor& tensor) {
  StringSink sink;
  write_torch_file(sink, Value(tensor));
  return sink.text;
}

TEST(TensorBlob, HasTheBytesOfATorchFile) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kUInt16, DType::kBool}) {
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0, 4}, Shape{2, 1, 3, 1, 2}}) {
      const Tensor tensor = counted(dtype, shape);
      EXPECT_EQ(blob_of(tensor.view()), torch_file_of(tensor)) << name_of(dtype) << to_string(shape);
    }
  }
}

TEST(TensorBlob, ADenseTensorKeepsItsOrder) {
  const Tensor tensor = counted(DType::kInt32, {4, 6});
  TensorView turned = tensor.view();
  turned.shape = {6, 4};
  turned.strides = {1, 6};
  EXPECT_TRUE(TensorBlob(turned).memory().has_value());
  EXPECT_EQ(blob_of(turned), torch_file_of(Tensor(turned, tensor.owner())));
}

TEST(TensorBlob, ScatteredElementsAreStoredTogether) {
  const Tensor tensor = counted(DType::kInt32, {4, 6});
  const TensorView part = tensor.view().narrow({{1, 2}, {2, 3}});
  EXPECT_FALSE(TensorBlob(part).memory().has_value());
  const std::string blob = blob_of(part);
  const auto file = TorchFile::open(memory_source(as_bytes(blob)));
  const Tensor whole = Tensor::empty(DType::kInt32, {2, 3});
  copy(part, whole.view());
  EXPECT_EQ(file->load(), Value(whole));
}

TEST(TensorBlob, AnExpandedTensorIsStoredInFull) {
  const Tensor one = counted(DType::kInt64, {1});
  TensorView wide = one.view();
  wide.shape = {3};
  wide.strides = {0};
  EXPECT_FALSE(TensorBlob(wide).memory().has_value());
  EXPECT_EQ(TensorBlob(wide).data_bytes(), 24U);
}

}  // namespace tensor_blob_test
}  // namespace cairn
