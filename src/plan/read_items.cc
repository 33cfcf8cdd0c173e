#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "plan/checkpoint_index.h"

namespace cairn {
namespace {

// A plan of more items than this is a checkpoint that lies about its chunks, or a mistake.
constexpr std::size_t kMostItems = std::size_t{1} << 28;

// Up to so many wanted boxes are compared with every chunk; more are worth an index.
constexpr std::size_t kFewWanted = 8;

// Extends `reach`, the greatest end so far in each dimension, by a box. False when the box is no part of
// any tensor of that rank.
bool extend(std::vector<std::int64_t>& reach, const Box& box) {
  const std::size_t rank = reach.size();
  if (box.offsets.rank() != rank || box.sizes.rank() != rank) return false;
  const std::int64_t* offsets = box.offsets.data();
  const std::int64_t* sizes = box.sizes.data();
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t end;
    if (offsets[d] < 0 || sizes[d] < 0 || __builtin_add_overflow(offsets[d], sizes[d], &end)) return false;
    reach[d] = std::max(reach[d], end);
  }
  return true;
}

[[noreturn]] void refuse(const Box& box, std::size_t rank, ErrorCode code, const char* whose) {
  throw Error(code, fmt::format("{} with offsets {} and sizes {} is no part of a tensor with {} dimensions",
                                whose, to_string(box.offsets), to_string(box.sizes), rank));
}

// The dimension in which boxes reach farthest, the first of several: what DCP sorts by.
std::size_t sweep_dimension(const TensorStorageMetadata& stored, std::span<const Box> wanted,
                            std::size_t rank) {
  std::vector<std::int64_t> reach(rank, 0);
  for (const Box& chunk : stored.chunks) {
    if (!extend(reach, chunk)) refuse(chunk, rank, ErrorCode::kCorrupt, "a stored chunk");
  }
  for (const Box& box : wanted) {
    if (!extend(reach, box)) refuse(box, rank, ErrorCode::kInvalidArgument, "a wanted box");
  }
  return static_cast<std::size_t>(std::max_element(reach.begin(), reach.end()) - reach.begin());
}

ReadItem read_item(const std::string& fqn, const Box& chunk, std::size_t chunk_at, const Box& box,
                   std::size_t box_at) {
  const std::size_t rank = box.rank();
  ReadItem item;
  item.type = LoadItemType::kTensor;
  item.dest_index = {fqn, box.offsets, static_cast<std::int64_t>(box_at)};
  item.storage_index = {fqn, chunk.offsets, static_cast<std::int64_t>(chunk_at)};
  item.dest_offsets = Shape(rank, 0);
  item.storage_offsets = Shape(rank, 0);
  item.lengths = Shape(rank, 0);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t begin = std::max(chunk.offsets[d], box.offsets[d]);
    const std::int64_t end = std::min(chunk.offsets[d] + chunk.sizes[d], box.offsets[d] + box.sizes[d]);
    item.dest_offsets[d] = begin - box.offsets[d];
    item.storage_offsets[d] = begin - chunk.offsets[d];
    item.lengths[d] = end - begin;
  }
  return item;
}

void scan(const std::vector<Box>& chunks, const Box& box, std::vector<std::uint32_t>& found) {
  for (std::uint32_t i = 0; i < chunks.size(); ++i) {
    if (meet(chunks[i], box)) found.push_back(i);
  }
}

}  // namespace

void append_read_items(const std::string& fqn, const TensorStorageMetadata& stored,
                       std::span<const Box> wanted, std::unique_ptr<ChunkIndex>& index,
                       std::vector<ReadItem>& items) {
  const std::vector<Box>& chunks = stored.chunks;
  if (wanted.empty() || chunks.empty()) return;
  if (chunks.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, fmt::format("{} chunks are too many for one tensor", chunks.size()));
  }
  const std::size_t rank = wanted[0].rank();
  const std::size_t sweep = sweep_dimension(stored, wanted, rank);
  const auto begin = [&](const Box& box) { return rank == 0 ? 0 : box.offsets[sweep]; };
  const auto end = [&](const Box& box) { return rank == 0 ? 1 : box.offsets[sweep] + box.sizes[sweep]; };

  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return begin(wanted[a]) < begin(wanted[b]); });
  if (index == nullptr && rank > 0 && wanted.size() > kFewWanted && chunks.size() > kFewWanted) {
    index = std::make_unique<ChunkIndex>(chunks);
  }
  std::vector<std::uint32_t> found;
  for (const std::size_t at : order) {
    found.clear();
    if (index != nullptr) {
      index->find(wanted[at], found);
    } else {
      scan(chunks, wanted[at], found);
    }
    std::sort(found.begin(), found.end(), [&](std::uint32_t a, std::uint32_t b) {
      const std::int64_t end_a = end(chunks[a]);
      const std::int64_t end_b = end(chunks[b]);
      return end_a != end_b ? end_a < end_b : a < b;
    });
    if (found.size() > kMostItems - std::min(kMostItems, items.size())) {
      throw Error(ErrorCode::kLimit, fmt::format("more than {} read items", kMostItems));
    }
    for (const std::uint32_t chunk : found)
      items.push_back(read_item(fqn, chunks[chunk], chunk, wanted[at], at));
  }
}

std::vector<ReadItem> create_read_items_for_chunk_list(const std::string& fqn,
                                                       const TensorStorageMetadata& stored,
                                                       const std::vector<Box>& wanted) {
  std::vector<ReadItem> items;
  std::unique_ptr<ChunkIndex> index;
  try {
    append_read_items(fqn, stored, wanted, index, items);
  } catch (Error& e) {
    e.of_tensor(fqn).while_doing("planning a load");
    throw;
  }
  return items;
}

CheckpointIndex::CheckpointIndex(const Metadata& metadata) : metadata_(metadata) {
  for (std::size_t i = 0; i < metadata.state_dict_metadata.size(); ++i) {
    const std::string& fqn = metadata.state_dict_metadata[i].first;
    if (names_.intern(fqn) == i) continue;
    throw Error(ErrorCode::kCorrupt, "the checkpoint has two entries of this name").of_tensor(fqn);
  }
}

std::optional<std::size_t> CheckpointIndex::find(std::string_view fqn) const { return names_.find(fqn); }

void CheckpointIndex::add_read_items(std::size_t position, std::span<const Box> wanted,
                                     std::vector<ReadItem>& items) {
  const auto& [fqn, entry] = metadata_.state_dict_metadata[position];
  const TensorStorageMetadata& stored = std::get<TensorStorageMetadata>(entry);
  try {
    if (wanted.size() <= kFewWanted && !chunks_.contains(position)) {
      std::unique_ptr<ChunkIndex> none;
      append_read_items(fqn, stored, wanted, none, items);
    } else {
      append_read_items(fqn, stored, wanted, chunks_[position], items);
    }
  } catch (Error& e) {
    e.of_tensor(fqn).while_doing("planning a load");
    throw;
  }
}

}  // namespace cairn
