// Puts a selection of a tensor together from the chunks it is stored in.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.h"

namespace cairn {

// Elements may be stored in fewer bytes than they take in memory (a view that repeats one element), but a
// small file must not ask for all there is.
inline constexpr std::uint64_t kFreeBytes = 16ULL << 20;
inline constexpr std::uint64_t kMostGrowth = 32;

// The chunks of one tensor, as a format stores them.
class ChunkReader {
 public:
  virtual ~ChunkReader() = default;
  // How many bytes of elements there may be in what is stored; known to exist, not merely declared.
  virtual std::uint64_t most_bytes(std::size_t chunk) const = 0;
  // Copies a complete selection of the chunk's own elements.
  virtual void read(std::size_t chunk, const Selection& from, const TensorView& to) const = 0;
};

// Error kInvalidArgument for a bad selection; kCorrupt when chunks overlap in it or leave a part of it
// uncovered, with the first box that is missing; kLimit when the elements cannot all be stored in so few
// bytes. Errors name the tensor. Nothing is allocated before all that is checked.
Tensor assemble(std::string_view name, DType dtype, const Shape& shape, const std::vector<Box>& chunks,
                const Selection& selection, const ChunkReader& reader);

// The same into memory that is there; Error kInvalidArgument when its shape is not the selection's.
void assemble_into(std::string_view name, const Shape& shape, const std::vector<Box>& chunks,
                   const Selection& selection, const ChunkReader& reader, const TensorView& to);

}  // namespace cairn
