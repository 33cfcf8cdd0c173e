// torch.save archives: nested state with tensors, read lazily and written so that torch.load
// (weights_only=True) takes it. One item of a .distcp file is such an archive too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/sink.h"
#include "base/source.h"
#include "cairn/limits.h"
#include "cairn/state_dict.h"
#include "format/budget.h"
#include "format/zip.h"

namespace cairn {

struct TorchFileOptions {
  std::uint64_t max_pickle_bytes = 64ULL << 20;
  std::uint64_t max_entries = 1'000'000;
};

// An opened archive: its directory and data.pkl have been read, its tensors have not.
class TorchFile {
 public:
  // Error kUnsupported for the legacy (pre-1.6, tar or plain pickle) format, with what to do about it.
  static std::unique_ptr<TorchFile> open(std::shared_ptr<const ByteSource> source,
                                         const TorchFileOptions& options = {}, const Limits& limits = {});

  // The saved object. Tensors are StoredTensor; their ids index tensors().
  const Value& root() const { return root_; }

  // Where a tensor's elements are, in the source.
  struct Stored {
    StoredTensor tensor;
    std::string storage_key;        // "0": record data/0
    std::uint64_t data_offset = 0;  // of the storage's first byte, in the source
    std::uint64_t storage_bytes = 0;
    std::uint64_t first_element = 0;  // storage_offset, in elements
    std::uint32_t crc = 0;            // of the whole storage record; 0: unknown
  };
  const std::vector<Stored>& tensors() const { return tensors_; }
  const ByteSource& source() const { return *source_; }
  // Facts about the writer: records found ("byteorder", ".format_version"...), data.pkl protocol.
  const ZipReader& zip() const { return *zip_; }

  // What is left of the memory that the values of data.pkl may take, for who makes more of them.
  Budget& budget() { return budget_; }

  // The same value with every tensor read: StoredTensor replaced by Tensor. Tensors that share a storage
  // share memory. Each storage is read once and its CRC checked. What a Tensor cannot say is lost here:
  // that it was a parameter, and requires_grad.
  Value load() const;

 private:
  std::shared_ptr<const ByteSource> source_;
  std::unique_ptr<ZipReader> zip_;
  Value root_;
  std::vector<Stored> tensors_;
  Budget budget_{0, Limits()};
};

struct TorchWriteOptions {
  std::string archive_name = "archive";
  std::uint64_t alignment = 64;
};

// Writes `root` as torch.save does; torch.load(weights_only=True) reads it, as long as it holds no Opaque.
// Tensors that overlap in memory, or lie side by side under one owner, share a storage in the file; dense
// ones keep their strides. Returns the number of bytes written. Error kInvalidArgument for a ShardedTensor
// or StoredTensor inside, kUnsupported for an Opaque that refers to tensors of the file it came from.
std::uint64_t write_torch_file(ByteSink& sink, const Value& root, const TorchWriteOptions& options = {});

}  // namespace cairn
