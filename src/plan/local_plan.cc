#include <fmt/format.h>

#include "cairn/error.h"
#include "cairn/plan_steps.h"
#include "plan/item_tables.h"

namespace cairn {
namespace {

TensorProperties properties_of(DType dtype) {
  TensorProperties properties;
  properties.dtype = dtype;
  return properties;
}

class LocalPlan {
 public:
  void add(const FlatEntry& entry) {
    check_name(entry.name);
    if (const Tensor* tensor = entry.value.get_if<Tensor>()) {
      const TensorView& view = tensor->view();
      const Shape zeros(view.shape.rank(), 0);
      add_chunk(entry.name, WriteItemType::kTensor, view.dtype, view.shape, zeros, view.shape);
    } else if (const ShardedTensor* sharded = entry.value.get_if<ShardedTensor>()) {
      for (const LocalShard& shard : sharded->shards) add_shard(entry.name, *sharded, shard);
    } else if (entry.value.is<StoredTensor>()) {
      throw Error(ErrorCode::kUnsupported, "a tensor still lies in a file: load it before saving it")
          .of_tensor(entry.name)
          .while_doing("planning a save");
    } else {
      ItemRow row;
      row.name = tables_.names.intern(entry.name);
      row.type = static_cast<std::uint32_t>(WriteItemType::kByteIO);
      rows_.push_back(row);
    }
  }

  void finish(SavePlan& plan) {
    plan.items.rows().tables = std::make_shared<ItemTables>(std::move(tables_));
    plan.items.rows().rows = std::move(rows_);
  }

 private:
  void add_shard(const std::string& name, const ShardedTensor& sharded, const LocalShard& shard) {
    const TensorView& view = shard.data.view();
    if (view.shape != shard.box.sizes || view.dtype != sharded.dtype) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a shard is {} {} in memory and {} {} in its description", name_of(view.dtype),
                              to_string(view.shape), name_of(sharded.dtype), to_string(shard.box.sizes)))
          .of_tensor(name)
          .while_doing("planning a save");
    }
    add_chunk(name, WriteItemType::kShard, sharded.dtype, sharded.global_shape, shard.box.offsets,
              shard.box.sizes);
  }

  void add_chunk(const std::string& name, WriteItemType type, DType dtype, const Shape& size,
                 const Shape& offsets, const Shape& sizes) {
    ItemRow row;
    row.name = tables_.names.intern(name);
    row.type = static_cast<std::uint32_t>(type);
    row.tensor = tables_.intern_spec(properties_of(dtype), size);
    row.offset = tables_.dims.intern(offsets.dims());
    row.chunk_offsets = row.offset;
    row.chunk_sizes = tables_.dims.intern(sizes.dims());
    rows_.push_back(row);
  }

  ItemTables tables_;
  PodVector<ItemRow> rows_;
};

}  // namespace

PathMap paths_of(const Flattened& entries) {
  PathMap paths;
  for (const FlatEntry& entry : entries) paths.add(entry.name, entry.path);
  return paths;
}

SavePlan create_default_local_save_plan(const Flattened& entries) {
  LocalPlan local;
  for (const FlatEntry& entry : entries) local.add(entry);
  SavePlan plan;
  local.finish(plan);
  return plan;
}

}  // namespace cairn
