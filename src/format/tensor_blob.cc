#include "format/tensor_blob.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "format/pickle_writer.h"

namespace cairn {
namespace {

constexpr std::uint64_t kAlignment = 64;  // of the elements in the archive, as torch has it

void require_memory(const TensorView& view) {
  if (view.data == nullptr && view.numel() > 0)
    throw Error(ErrorCode::kInvalidArgument, "a tensor has no memory");
}

// Whether the elements fill one run of memory without gaps or repetitions, in any order of the dimensions.
bool is_dense(const TensorView& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::size_t d = 0; d < view.shape.rank(); ++d)
    if (view.shape[d] > 1) dims.emplace_back(view.strides[d], view.shape[d]);
  std::sort(dims.begin(), dims.end());
  std::int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

std::string program_of(const TensorView& view, const Shape& strides, std::uint64_t bytes) {
  StringSink sink;
  pickle::Writer w(sink, 2);
  write_torch_tensor(w, view.dtype, view.shape, strides, 0, {view.dtype, bytes, "0"});
  w.finish();
  return std::move(sink.text);
}

}  // namespace

TensorBlob::TensorBlob(const TensorView& tensor)
    : archive_(sink_, "archive", kAlignment), data_bytes_(tensor.bytes()) {
  require_memory(tensor);
  const bool dense = data_bytes_ > 0 && is_dense(tensor);
  if (dense || data_bytes_ == 0) memory_ = ByteSpan{tensor.data, data_bytes_};
  archive_.add_head(
      program_of(tensor, dense ? tensor.strides : contiguous_strides(tensor.shape), data_bytes_));
  archive_.begin_elsewhere("data/0", data_bytes_);
  head_ = std::exchange(sink_.text, {});
}

std::string TensorBlob::tail(std::uint32_t crc) {
  archive_.end_elsewhere(crc);
  archive_.finish();
  return std::move(sink_.text);
}

}  // namespace cairn
