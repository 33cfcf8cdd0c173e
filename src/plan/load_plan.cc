#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "plan/load_entries.h"
#include "plan/torch_words.h"

namespace cairn {

std::string torch_size(const Shape& shape) { return fmt::format("torch.Size({})", to_string(shape)); }

std::string missing_key(std::string_view fqn) {
  return fmt::format("Missing key in checkpoint state_dict: {}.", fqn);
}

std::string size_mismatch(std::string_view fqn, const Shape& saved, const Shape& wanted) {
  return fmt::format("Size mismatch between saved {} and current: {} for {}", torch_size(saved),
                     torch_size(wanted), fqn);
}

std::string wrong_kind(std::string_view fqn) {
  return fmt::format(
      "Invalid checkpoint metadata for {}, expected BytesStorageMetadata but found "
      "<class 'torch.distributed.checkpoint.metadata.TensorStorageMetadata'>",
      fqn);
}

std::optional<Destination> destination_of(const FlatEntry& entry) {
  if (const auto* tensor = entry.value.get_if<Tensor>()) {
    const TensorView& view = tensor->view();
    return Destination{view.dtype, view.shape, {Box::whole(view.shape)}};
  }
  if (entry.value.is<StoredTensor>()) {
    throw Error(ErrorCode::kUnsupported, "a tensor that lies in a file cannot be loaded into")
        .of_tensor(entry.name);
  }
  const auto* sharded = entry.value.get_if<ShardedTensor>();
  if (sharded == nullptr) return std::nullopt;
  Destination destination{sharded->dtype, sharded->global_shape, {}};
  const Box whole = Box::whole(sharded->global_shape);
  for (const LocalShard& shard : sharded->shards) {
    const bool fits = shard.box.rank() == whole.rank() && shard.box.offsets.rank() == whole.rank() &&
                      whole.contains(shard.box) && shard.data.view().shape == shard.box.sizes;
    if (!fits) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a shard of shape {} at offsets {} with sizes {} is no part of shape {}",
                              to_string(shard.data.view().shape), to_string(shard.box.offsets),
                              to_string(shard.box.sizes), to_string(sharded->global_shape)))
          .of_tensor(entry.name);
    }
    destination.boxes.push_back(shard.box);
  }
  return destination;
}

ReadItem read_object(const std::string& fqn) {
  ReadItem item;
  item.type = LoadItemType::kByteIO;
  item.dest_index.fqn = fqn;
  item.storage_index.fqn = fqn;
  item.dest_offsets = item.storage_offsets = item.lengths = Shape{0};
  return item;
}

void add_entry(CheckpointIndex& index, std::size_t position, const FlatEntry& entry,
               std::vector<ReadItem>& items) {
  const StorageMetadata& stored = index.metadata().state_dict_metadata[position].second;
  const auto* tensor = std::get_if<TensorStorageMetadata>(&stored);
  if (tensor == nullptr) {
    items.push_back(read_object(entry.name));
    return;
  }
  const std::optional<Destination> destination = destination_of(entry);
  if (!destination) throw Error(ErrorCode::kInvalidArgument, wrong_kind(entry.name)).of_tensor(entry.name);
  if (destination->shape != tensor->size) {
    throw Error(ErrorCode::kInvalidArgument, size_mismatch(entry.name, tensor->size, destination->shape))
        .of_tensor(entry.name);
  }
  index.add_read_items(position, destination->boxes, items);
}

LoadPlan create_default_local_load_plan(const Flattened& entries, const Metadata& metadata, bool strict) {
  CheckpointIndex index(metadata);
  LoadPlan plan;
  for (const FlatEntry& entry : entries) {
    const std::optional<std::size_t> position = index.find(entry.name);
    if (position) {
      add_entry(index, *position, entry, plan.items);
    } else if (strict) {
      throw Error(ErrorCode::kNotFound, missing_key(entry.name)).of_tensor(entry.name);
    }
  }
  return plan;
}

std::vector<LoadPlan> create_default_global_load_plan(std::vector<LoadPlan> all) { return all; }

}  // namespace cairn
