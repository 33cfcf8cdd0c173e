#include "format/torch_storages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "cairn/error.h"
#include "format/pickle_ops.h"
#include "state/nesting.h"

namespace cairn {
namespace {

// A tensor and the memory from its first to its last element.
struct Use {
  const Value* value;
  const Tensor* tensor;
  std::uintptr_t begin = 0, end = 0;
  bool as_it_lies = false;  // may be written with its strides
  std::size_t group = 0;    // uses of one group share a storage

  const TensorView& view() const { return tensor->view(); }
  std::size_t item() const { return item_size(view().dtype); }
  std::uint64_t extent() const { return end - begin; }
};

void check_opaque(const Opaque& opaque) {
  std::uint64_t at = 0;
  while (const auto instruction = pickle::decode(opaque.pickle, at)) {
    if (instruction->op == pickle::kBinPersid) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("an object of class {} holds tensors of the file it was read from, and cannot be "
                      "written to another",
                      opaque.class_name));
    }
    at = instruction->next;
  }
}

void require_cpu_memory(const TensorView& view) {
  if (!view.device.is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "a tensor is not in CPU memory; stage it first");
  }
  if (view.data == nullptr && view.numel() > 0)
    throw Error(ErrorCode::kInvalidArgument, "a tensor has no memory");
}

Use use_of(const Value& value, const Tensor& tensor) {
  const TensorView& view = tensor.view();
  require_cpu_memory(view);
  Use use;
  use.value = &value;
  use.tensor = &tensor;
  use.begin = use.end = reinterpret_cast<std::uintptr_t>(view.data);
  if (view.numel() == 0) return use;
  std::int64_t last = 0;
  use.as_it_lies = true;
  for (std::size_t i = 0; i < view.shape.rank(); ++i) {
    if (view.shape[i] > 1 && view.strides[i] < 0) use.as_it_lies = false;
    last = checked_add(last, checked_mul(view.shape[i] - 1, view.strides[i]));
  }
  if (use.as_it_lies) use.end += (static_cast<std::uint64_t>(last) + 1) * use.item();
  return use;
}

// Every tensor below `value`, in the order in which the pickle names them.
void collect(const Value& value, int depth, std::vector<Use>& uses) {
  check_nesting(depth);
  if (const auto* tensor = value.get_if<Tensor>()) {
    uses.push_back(use_of(value, *tensor));
  } else if (const auto* list = value.get_if<List>()) {
    for (const Value& v : *list) collect(v, depth + 1, uses);
  } else if (const auto* tuple = value.get_if<Tuple>()) {
    for (const Value& v : tuple->items) collect(v, depth + 1, uses);
  } else if (const auto* dict = value.get_if<Dict>()) {
    for (const auto& [key, v] : *dict) collect(v, depth + 1, uses);
  } else if (const auto* opaque = value.get_if<Opaque>()) {
    check_opaque(*opaque);
  } else if (value.is_tensor()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a torch.save file holds whole tensors: read or gather them first");
  }
}

bool same_owner(const Use& a, const Use& b) {
  const auto &x = a.tensor->owner(), &y = b.tensor->owner();
  return x != nullptr && y != nullptr && !x.owner_before(y) && !y.owner_before(x);
}

// Numbers the groups: uses in order of address, each joined to the one before if they overlap or touch.
// Returns the groups, each a list of positions in `uses`.
std::vector<std::vector<std::size_t>> group_by_memory(std::vector<Use>& uses) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].as_it_lies) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return uses[a].begin < uses[b].begin; });
  std::vector<std::vector<std::size_t>> groups;
  std::size_t farthest = 0;  // the use that ends last in the open group
  for (std::size_t i : order) {
    const bool joins =
        !groups.empty() && (uses[i].begin < uses[farthest].end ||
                            (uses[i].begin == uses[farthest].end && same_owner(uses[i], uses[farthest])));
    if (!joins) groups.emplace_back();
    if (!joins || uses[i].end > uses[farthest].end) farthest = i;
    groups.back().push_back(i);
    uses[i].group = groups.size() - 1;
  }
  return groups;
}

// Some groups cannot be one storage: a lone tensor with holes between its elements is packed, and offsets
// must be whole elements.
bool can_share(const std::vector<Use>& uses, const std::vector<std::size_t>& group) {
  const Use& first = uses[group.front()];
  if (group.size() == 1) return first.extent() <= first.view().bytes();
  return std::all_of(group.begin(), group.end(),
                     [&](std::size_t i) { return (uses[i].begin - first.begin) % uses[i].item() == 0; });
}

PlannedStorage storage_of(const std::vector<Use>& uses, const std::vector<std::size_t>& group) {
  const Use& first = uses[group.front()];
  PlannedStorage storage;
  storage.dtype = first.view().dtype;
  std::uintptr_t end = first.end;
  for (std::size_t i : group) {
    end = std::max(end, uses[i].end);
    if (uses[i].view().dtype != storage.dtype) storage.dtype = std::nullopt;
  }
  storage.bytes = end - first.begin;
  storage.memory = {first.view().data, storage.bytes};
  return storage;
}

PlannedStorage storage_of_copy(const Use& use) {
  PlannedStorage storage;
  storage.gather = use.tensor;
  storage.bytes = use.view().bytes();
  storage.dtype = use.view().dtype;
  return storage;
}

}  // namespace

TorchStorages plan_storages(const Value& root) {
  std::vector<Use> uses;
  collect(root, 0, uses);
  const std::vector<std::vector<std::size_t>> groups = group_by_memory(uses);
  std::vector<bool> shares;
  for (const auto& group : groups) shares.push_back(can_share(uses, group));
  std::vector<std::optional<std::size_t>> storage_of_group(groups.size());

  TorchStorages plan;
  for (const Use& use : uses) {
    PlannedTensor planned;
    planned.storage = plan.storages.size();
    if (use.as_it_lies && shares[use.group]) {
      auto& number = storage_of_group[use.group];
      if (!number) {
        number = plan.storages.size();
        plan.storages.push_back(storage_of(uses, groups[use.group]));
      }
      planned.storage = *number;
      planned.offset = (use.begin - uses[groups[use.group].front()].begin) / use.item();
      planned.strides = use.view().strides;
    } else {
      plan.storages.push_back(storage_of_copy(use));
      planned.strides = contiguous_strides(use.view().shape);
    }
    plan.tensors.emplace(use.value, std::move(planned));
  }
  return plan;
}

}  // namespace cairn
