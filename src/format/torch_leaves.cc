#include "format/torch_leaves.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/checked.h"
#include "cairn/error.h"
#include "format/torch_dtype.h"

namespace cairn {
namespace {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;

constexpr std::uint64_t kMostTensorBytes = std::uint64_t{1} << 62;

Error broken_leaf(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

std::int64_t number(const Graph& graph, Ref r, std::string_view what) {
  if (graph.is_integer(r)) return graph.integer(r);
  if (r.kind() != Kind::kBigInt) throw broken_leaf(fmt::format("{} of a tensor is not an integer", what));
  throw Error(ErrorCode::kLimit, fmt::format("{} of a tensor does not fit in 64 bits", what));
}

bool flag(Ref r, std::string_view what) {
  if (r.kind() != Kind::kTrue && r.kind() != Kind::kFalse) {
    throw broken_leaf(fmt::format("{} of a tensor is neither True nor False", what));
  }
  return r.kind() == Kind::kTrue;
}

// Whether the optional last argument asks for more than the elements as they lie: {'conj': True}.
bool is_lazily_changed(const Graph& graph, Ref metadata) {
  if (metadata.kind() == Kind::kNone) return false;
  if (metadata.kind() != Kind::kDict) return true;
  return graph.size(metadata) != 0;
}

std::uint64_t bytes_of(const StoredTensor& tensor) {
  return block_bytes(sizeof(tensor)) + heap_bytes(tensor.shape) + heap_bytes(tensor.strides);
}

// The number behind _rebuild_tensor_v; 1 for the first, nameless one. 0: another function.
int rebuild_version(const Graph& graph, Ref callable) {
  if (graph.module(callable) != "torch._utils") return 0;
  const std::string_view name = graph.name(callable);
  return name == "_rebuild_tensor_v2"   ? 2
         : name == "_rebuild_tensor_v3" ? 3
         : name == "_rebuild_tensor"    ? 1
                                        : 0;
}

}  // namespace

struct TorchLeaves::Storage {
  std::string key;
  const ZipEntry* record = nullptr;
  std::optional<DType> dtype;  // nullopt: untyped
};

struct TorchLeaves::Layout {
  DType dtype;
  std::int64_t offset;
  Shape shape, strides;
  bool requires_grad;
};

bool TorchLeaves::read(const Graph& graph, Ref ref, Value& value) {
  if (ref.kind() != Kind::kObject || graph.has_state(ref) || graph.callable(ref).kind() != Kind::kGlobal)
    return false;
  if (graph.list_items(ref).kind() != Kind::kNone || graph.dict_items(ref).kind() != Kind::kNone)
    return false;
  auto known = known_.find(ref.bits);
  if (known == known_.end()) {
    const std::optional<StoredTensor> made = tensor(graph, ref);
    if (!made) return false;
    known = known_.emplace(ref.bits, *made).first;
  }
  budget_.take(bytes_of(known->second));
  value = known->second;
  return true;
}

std::optional<StoredTensor> TorchLeaves::tensor(const Graph& graph, Ref object) {
  const Ref callable = graph.callable(object), args = graph.args(object);
  if (const int version = rebuild_version(graph, callable)) return plain_tensor(graph, args, version);
  if (graph.is_global(callable, "torch._utils", "_rebuild_parameter") ||
      graph.is_global(callable, "torch._utils", "_rebuild_parameter_with_state")) {
    return parameter(graph, args);
  }
  return std::nullopt;
}

// (data, requires_grad, backward_hooks[, attributes]). The attributes somebody set on it are not kept.
std::optional<StoredTensor> TorchLeaves::parameter(const Graph& graph, Ref args) {
  if (graph.size(args) < 3) throw broken_leaf("a parameter is made from fewer than 3 arguments");
  const Ref data = graph.item(args, 0);
  if (data.kind() != Kind::kObject || graph.has_state(data)) return std::nullopt;
  const int version = rebuild_version(graph, graph.callable(data));
  if (version == 0) return std::nullopt;
  std::optional<StoredTensor> made = plain_tensor(graph, graph.args(data), version);
  if (!made) return made;
  made->parameter = true;
  made->requires_grad = flag(graph.item(args, 1), "requires_grad");
  tensors_[made->id].tensor = *made;
  return made;
}

// (storage, offset, size, strides[, requires_grad, backward_hooks[, dtype in v3][, metadata]])
std::optional<StoredTensor> TorchLeaves::plain_tensor(const Graph& graph, Ref args, int version) {
  const std::size_t least = version == 1 ? 4 : version == 2 ? 6 : 7;
  const std::size_t count = graph.size(args);
  if (count < least || count > least + (version == 1 ? 0 : 1)) {
    throw broken_leaf(fmt::format("a tensor is made from {} arguments, not from {}", count, least));
  }
  if (count > least && is_lazily_changed(graph, graph.item(args, least))) return std::nullopt;
  const std::optional<Storage> held = storage(graph, graph.item(args, 0));
  if (!held) return std::nullopt;

  Layout layout{};
  if (version == 3) {
    const Ref dtype = graph.item(args, 6);
    if (dtype.kind() != Kind::kGlobal) throw broken_leaf("the element type of a tensor is not named");
    const auto known = dtype_of_torch_global(graph.module(dtype), graph.name(dtype));
    if (!known) return std::nullopt;
    layout.dtype = *known;
  } else {
    if (!held->dtype)
      throw broken_leaf(
          fmt::format("storage '{}' has no element type, and its tensor names none", held->key));
    layout.dtype = *held->dtype;
  }
  layout.offset = number(graph, graph.item(args, 1), "the storage offset");
  layout.shape = shape(graph, graph.item(args, 2), "size");
  layout.strides = shape(graph, graph.item(args, 3), "stride");
  layout.requires_grad = version > 1 && flag(graph.item(args, 4), "requires_grad");
  return add(*held, layout);
}

// ('storage', class, key, location, number of elements)
std::optional<TorchLeaves::Storage> TorchLeaves::storage(const Graph& graph, Ref persid) const {
  if (persid.kind() != Kind::kPersid) throw broken_leaf("a tensor is made from something that is no storage");
  const Ref id = graph.payload(persid);
  if (id.kind() != Kind::kTuple || graph.size(id) != 5 || graph.item(id, 0).kind() != Kind::kString ||
      graph.text(graph.item(id, 0)) != "storage" || graph.item(id, 1).kind() != Kind::kGlobal ||
      graph.item(id, 2).kind() != Kind::kString) {
    throw broken_leaf("a storage is not described as ('storage', class, key, location, size)");
  }
  const Ref storage_class = graph.item(id, 1);
  if (graph.module(storage_class) != "torch" && graph.module(storage_class) != "torch.storage")
    throw broken_leaf(
        fmt::format("a storage is of class {}, which is none of torch's", graph.full_name(storage_class)));
  const std::string_view class_name = graph.name(storage_class);
  Storage made;
  made.key = graph.text(graph.item(id, 2));
  made.dtype = dtype_of_storage_class(class_name);
  if (!made.dtype && !is_untyped_storage_class(class_name)) return std::nullopt;

  made.record = zip_.find("data/" + made.key);
  if (made.record == nullptr) throw broken_leaf(fmt::format("the archive has no record 'data/{}'", made.key));
  const std::int64_t count = number(graph, graph.item(id, 4), "the storage size");
  const std::uint64_t item = made.dtype ? item_size(*made.dtype) : 1;
  const std::uint64_t held = made.record->size;
  if (count < 0 || held % item != 0 || static_cast<std::uint64_t>(count) != held / item) {
    throw broken_leaf(
        fmt::format("storage '{}' is said to have {} elements of {} bytes, but its record has {} bytes",
                    made.key, count, item, held));
  }
  return made;
}

Shape TorchLeaves::shape(const Graph& graph, Ref tuple, std::string_view what) const {
  if (tuple.kind() != Kind::kTuple) throw broken_leaf(fmt::format("the {} of a tensor is not a tuple", what));
  const std::size_t rank = graph.size(tuple);
  if (rank > limits_.tensor_rank) {
    throw Error(ErrorCode::kLimit,
                fmt::format("a tensor of {} dimensions, more than {}", rank, limits_.tensor_rank));
  }
  Shape made(rank, 0);
  for (std::size_t i = 0; i < rank; ++i) {
    made[i] = number(graph, graph.item(tuple, i), what);
    if (made[i] < 0)
      throw broken_leaf(fmt::format("the {} of a tensor has a negative number, {}", what, made[i]));
  }
  return made;
}

StoredTensor TorchLeaves::add(const Storage& storage, const Layout& layout) {
  const Shape& shape = layout.shape;
  if (shape.rank() != layout.strides.rank()) {
    throw broken_leaf(
        fmt::format("a tensor has {} dimensions and {} strides", shape.rank(), layout.strides.rank()));
  }
  if (layout.offset < 0)
    throw broken_leaf(fmt::format("a tensor starts at element {} of its storage", layout.offset));
  const std::int64_t numel = shape.numel();
  if (checked_mul<std::uint64_t>(static_cast<std::uint64_t>(numel), item_size(layout.dtype)) >
      kMostTensorBytes)
    throw Error(ErrorCode::kLimit, "a tensor larger than 2^62 bytes");
  if (numel > 0) {
    const std::uint64_t held = storage.record->size / item_size(layout.dtype);
    std::int64_t last = layout.offset;
    for (std::size_t i = 0; i < shape.rank(); ++i) {
      std::int64_t step = 0;
      if (__builtin_mul_overflow(shape[i] - 1, layout.strides[i], &step) ||
          __builtin_add_overflow(last, step, &last)) {
        last = INT64_MAX;  // past the end of every storage
        break;
      }
    }
    if (static_cast<std::uint64_t>(last) >= held) {
      throw broken_leaf(fmt::format("a tensor of shape {} reaches element {} of storage '{}', which has {}",
                                    to_string(shape), last, storage.key, held));
    }
  }
  TorchFile::Stored stored;
  stored.tensor.dtype = layout.dtype;
  stored.tensor.shape = shape;
  stored.tensor.strides = layout.strides;
  stored.tensor.id = tensors_.size();
  stored.tensor.requires_grad = layout.requires_grad;
  stored.storage_key = storage.key;
  stored.data_offset = storage.record->data_offset;
  stored.storage_bytes = storage.record->size;
  // Tensors without elements may start anywhere, even past the end; nobody is to read there.
  stored.first_element = numel > 0 ? static_cast<std::uint64_t>(layout.offset) : 0;
  stored.crc = storage.record->crc;
  // In the list, which may move as it grows, and among those that are known.
  budget_.take(2 * sizeof(stored) + text_bytes(storage.key) + 2 * bytes_of(stored.tensor));
  tensors_.push_back(stored);
  return stored.tensor;
}

}  // namespace cairn
