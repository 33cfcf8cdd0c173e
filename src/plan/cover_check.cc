#include "plan/cover_check.h"

namespace cairn {
namespace {

// The first dimension in which the chunk is not the whole tensor; the rank when there is none.
std::size_t cut_dimension(const Shape& shape, const Box& chunk) {
  std::size_t dim = 0;
  while (dim < shape.rank() && chunk.offsets[dim] == 0 && chunk.sizes[dim] == shape[dim]) ++dim;
  return dim;
}

bool fits_rank(const Box& chunk, std::size_t rank) {
  return chunk.offsets.rank() == rank && chunk.sizes.rank() == rank;
}

}  // namespace

bool are_slices_in_order(const Shape& shape, const std::vector<Box>& chunks) {
  const std::size_t rank = shape.rank();
  if (chunks.empty() || !fits_rank(chunks[0], rank)) return false;
  const std::size_t along = cut_dimension(shape, chunks[0]);
  if (along == rank) return chunks.size() == 1;
  std::int64_t end = 0;
  for (const Box& chunk : chunks) {
    if (!fits_rank(chunk, rank)) return false;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      if (dim != along && (chunk.offsets[dim] != 0 || chunk.sizes[dim] != shape[dim])) return false;
    }
    // `end` never passes shape[along], so this does not overflow. An empty slice at the end is fine.
    if (chunk.offsets[along] != end || chunk.sizes[along] < 0 || chunk.sizes[along] > shape[along] - end) {
      return false;
    }
    end += chunk.sizes[along];
  }
  return end == shape[along];
}

}  // namespace cairn
