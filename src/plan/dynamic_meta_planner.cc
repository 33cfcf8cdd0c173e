#include "cairn/planner.h"

namespace cairn {
namespace {

StorageMetadata described(DType dtype, const Shape& shape) {
  TensorStorageMetadata tensor;
  tensor.properties.dtype = dtype;
  tensor.size = shape;
  tensor.chunks = {Box::whole(shape)};
  return tensor;
}

StorageMetadata described(const Value& value) {
  if (const auto* tensor = value.get_if<Tensor>())
    return described(tensor->view().dtype, tensor->view().shape);
  if (const auto* tensor = value.get_if<ShardedTensor>())
    return described(tensor->dtype, tensor->global_shape);
  return BytesStorageMetadata{};
}

}  // namespace

void DynamicMetaLoadPlanner::set_up_planner(StateDict& state, const Metadata*, bool is_coordinator) {
  metadata_ = {};
  for (const FlatEntry& entry : cut(state, FlattenRule::kCurrent))
    metadata_.state_dict_metadata.emplace_back(entry.name, described(entry.value));
  DefaultLoadPlanner::set_up_planner(state, &metadata_, is_coordinator);
}

}  // namespace cairn
