// Which tensors of a state share which storage in the file.
//
// Tensors that alias in memory alias in the file: views that overlap, or that lie side by side under one
// owner (the pieces of a flat buffer), become views of one storage. Everything else gets its own storage,
// so a small view of a large buffer costs only its own bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

// One record data/N.
struct PlannedStorage {
  ByteSpan memory;                 // the record's bytes, when they lie in memory as they are written
  const Tensor* gather = nullptr;  // else: its elements, in row-major order
  std::uint64_t bytes = 0;
  std::optional<DType> dtype;  // nullopt: tensors of several types lie in it
};

struct PlannedTensor {
  std::size_t storage = 0;   // position in TorchStorages::storages
  std::uint64_t offset = 0;  // of the first element, in elements
  Shape strides;
};

// Borrows the memory of the tensors it was made from.
struct TorchStorages {
  std::vector<PlannedStorage> storages;                     // in order of first use
  std::unordered_map<const Value*, PlannedTensor> tensors;  // by the Value that holds the tensor
};

// Error kInvalidArgument for a ShardedTensor, a StoredTensor or a tensor without memory of the CPU's,
// kUnsupported for an Opaque that refers to storages of the file it came from.
TorchStorages plan_storages(const Value& root);

}  // namespace cairn
