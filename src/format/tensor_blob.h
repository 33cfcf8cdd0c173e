// One tensor as a torch.save archive in three parts: what comes before its elements, the elements, and what
// comes after. The elements need not pass through here, and who writes them can see to their alignment.
//
//   TensorBlob blob(view);
//   file.append(blob.head());
//   file.append(*blob.memory());                  // or gathered, when there is none
//   file.append(blob.tail(crc32(*blob.memory())));
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/sink.h"
#include "cairn/tensor.h"
#include "format/torch_archive.h"

namespace cairn {

// The archive has the records that write_torch_file gives a tensor alone. Borrows the tensor's memory.
class TensorBlob {
 public:
  // Error kInvalidArgument for a tensor without memory. The memory may be a device's: it is not looked at.
  explicit TensorBlob(const TensorView& tensor);
  TensorBlob(const TensorBlob&) = delete;
  TensorBlob& operator=(const TensorBlob&) = delete;

  const std::string& head() const { return head_; }
  std::uint64_t data_bytes() const { return data_bytes_; }
  // The elements as they are to be stored, when they lie so in memory: dense, in whatever order the strides
  // say. Else they are to be stored in row-major order.
  const std::optional<ByteSpan>& memory() const { return memory_; }
  // Call once, when the elements are written. `crc` is their CRC-32; 0 when nobody knows.
  std::string tail(std::uint32_t crc);
  // The length of the whole, as far as it is known before tail(): at least what it will be.
  std::uint64_t most_bytes() const { return head_.size() + data_bytes_ + kMostTail; }

 private:
  static constexpr std::uint64_t kMostTail = 2048;

  StringSink sink_;
  TorchArchive archive_;
  std::string head_;
  std::uint64_t data_bytes_ = 0;
  std::optional<ByteSpan> memory_;
};

}  // namespace cairn
