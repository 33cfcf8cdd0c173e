// Where each tensor of a state lies in a snapshot's memory, and which bytes have to be copied there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cairn/state_dict.h"

namespace cairn {

inline constexpr std::uint64_t kStagingPage = 4096;

// A tensor of the state.
struct StagedTensor {
  std::string name;  // for messages: "model.w"
  Tensor* target;    // in the snapshot's state; its view becomes the copy
  Tensor live;
  std::size_t place = 0;
  std::uint64_t at = 0;   // of its first element, in the place's memory
  bool gathered = false;  // elements that lie apart are brought together
};

// Live memory that is copied as it is.
struct StagedRun {
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
  std::size_t place = 0;
  std::uint64_t at = 0;  // in the place's memory
};

// The tensors of one device, or of the CPU, which are copied to one piece of memory.
struct StagedPlace {
  Device device;            // of the live tensors
  std::uint64_t bytes = 0;  // of memory that the copies need
};

struct StagingLayout {
  std::vector<StagedTensor> tensors;  // those with elements
  std::vector<StagedRun> runs;        // by place and address; no byte is in two of them
  std::vector<std::size_t> gathered;  // tensors to be copied element by element, each memory once
  std::vector<StagedPlace> places;    // devices first, the CPU last; those that have tensors

  // The copy of tensor `i`, when its place has this memory, on this device, which `owner` keeps.
  Tensor copy_of(std::size_t i, std::byte* memory, Device device, const std::shared_ptr<void>& owner) const;
  // The same: its memory from the first byte to the last.
  ByteSpan bytes_of_copy(std::size_t i, std::byte* memory) const;
  // Makes the tensors of the snapshot's state those copies, for all tensors of the place.
  void put(std::size_t place, std::byte* memory, Device device, const std::shared_ptr<void>& owner) const;
};

// `state` is a copy of the live state whose tensors are still the live ones; it must stay where it is.
// Views that are dense, or that lie within a dense one, are parts of a run and keep their strides.
// Error(kInvalidArgument) names a tensor without memory.
StagingLayout lay_out(StateDict& state);

}  // namespace cairn
