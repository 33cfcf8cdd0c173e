// Where each tensor of a state lies in a snapshot's memory, and which bytes have to be copied there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/state_dict.h"

namespace cairn {

// A tensor of the state.
struct StagedTensor {
  std::string name;  // for messages: "model.w"
  Tensor* target;    // in the snapshot's state; its view becomes the copy
  Tensor live;
  std::uint64_t at = 0;   // of its first element, in the snapshot's memory
  bool gathered = false;  // elements that lie apart are brought together
};

// Live memory that is copied as it is.
struct StagedRun {
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t at = 0;  // in the snapshot's memory
};

struct StagingLayout {
  std::vector<StagedTensor> tensors;  // those with elements
  std::vector<StagedRun> runs;        // by address; no byte is in two of them
  std::vector<std::size_t> gathered;  // tensors to be copied element by element, each memory once
  std::uint64_t bytes = 0;            // of memory that the snapshot needs

  // Makes the tensors of the snapshot's state views of `memory`, which `owner` keeps.
  void place(std::byte* memory, const std::shared_ptr<void>& owner) const;
};

// `state` is a copy of the live state whose tensors are still the live ones; it must stay where it is.
// Views that are dense, or that lie within a dense one, are parts of a run and keep their strides. Errors
// name the tensor: kUnsupported for memory of a device, kInvalidArgument for a tensor without memory.
StagingLayout lay_out(StateDict& state);

}  // namespace cairn
