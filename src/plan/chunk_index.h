// Finds the stored chunks of one tensor that meet a box.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/pod_vector.h"
#include "cairn/tensor.h"

namespace cairn {

// A packed tree of bounding boxes over chunks, built once and searched many times. Chunks that lie near
// each other share a node: they are put in the order of a space-filling curve, which takes one pass over
// their digits. Chunks made so that this order is no good use up a number of visits; then they are put in
// the order of a k-d tree over begins and ends, in which a search visits at most n^(1 - 1/2d) nodes beyond
// its results.
//
// The chunks are borrowed; all have the rank of the tensor and ends that fit in 64 bits. One thread at a
// time.
class ChunkIndex {
 public:
  explicit ChunkIndex(std::span<const Box> chunks);

  // Appends the positions of the chunks that meet the box, in no order. As in DCP, [b, e) and [c, f) meet
  // when b < f and c < e in every dimension: a side of length 0 meets those it lies strictly inside of.
  void find(const Box& wanted, std::vector<std::uint32_t>& found);

 private:
  static constexpr std::size_t kFan = 16;

  struct Level {
    std::size_t count = 0;           // of nodes
    PodVector<std::int64_t> bounds;  // per node and dimension: least begin, greatest end
  };

  void sort_by_curve();
  void sort_by_halves();
  void build();
  bool search(const Box& wanted, std::vector<std::uint32_t>& found);
  bool meets(std::size_t level, std::size_t node, const Box& wanted) const;

  std::span<const Box> chunks_;
  std::size_t rank_ = 0;
  PodVector<std::uint32_t> order_;
  std::vector<Level> levels_;  // the lowest first
  bool halved_ = false;
  std::uint64_t visits_left_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open_;  // level, node
};

// Whether two boxes of one rank meet, by the rule above.
inline bool meet(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.rank(); ++d) {
    if (a.offsets[d] >= b.offsets[d] + b.sizes[d] || b.offsets[d] >= a.offsets[d] + a.sizes[d]) return false;
  }
  return true;
}

}  // namespace cairn
