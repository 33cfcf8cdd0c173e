// The plain way: objects that are complete, as nodes of the graph.

#include "format/dcp_reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "cairn/error.h"
#include "format/dcp_metadata.h"
#include "format/safetensors.h"  // check_relative_path

namespace cairn {

using pickle::Graph;
using pickle::Kind;
using pickle::Ref;

namespace {

// What a NameTable takes for a name beside its text. Names are not shared as strings are: each is in the
// file.
constexpr std::uint64_t kNameBytes = 40;

std::int64_t integer_of(const Graph& graph, Ref ref, std::string_view what) {
  if (graph.is_integer(ref)) return graph.integer(ref);
  if (ref.kind() == Kind::kBigInt)
    throw Error(ErrorCode::kLimit, fmt::format("{} does not fit in 64 bits", what));
  broken_metadata(fmt::format("{} is not an integer", what));
}

bool bool_of(Ref ref, std::string_view what) {
  if (ref.kind() != Kind::kTrue && ref.kind() != Kind::kFalse)
    broken_metadata(fmt::format("{} is not a bool", what));
  return ref.kind() == Kind::kTrue;
}

Ref field(const Graph& graph, Ref state, std::string_view name, std::string_view of) {
  Ref value;
  if (!graph.find(state, name, value)) broken_metadata(fmt::format("{} without its field '{}'", of, name));
  return value;
}

void must_be_dict(Ref state, std::string_view of) {
  if (state.kind() != Kind::kDict) broken_metadata(fmt::format("the state of {} is not a dict", of));
}

// The class of an object that is still an object, kOther for everything else.
DcpReducer::Class class_of_object(const Graph& graph, Ref ref) {
  if (ref.kind() != Kind::kObject || graph.callable(ref).kind() != Kind::kGlobal) return DcpReducer::kOther;
  const Ref global = graph.callable(ref);
  return DcpReducer::class_of(graph.module(global), graph.name(global));
}

bool is_handle(const Graph& graph, Ref ref, std::uint32_t type) {
  return ref.kind() == Kind::kHandle && graph.handle_type(ref) == type;
}

DType dtype_of(const Graph& graph, Ref ref) {
  if (ref.kind() != Kind::kGlobal || graph.module(ref) != "torch")
    broken_metadata("the dtype of a tensor is no torch dtype");
  const std::optional<DType> dtype = dtype_from_name(graph.name(ref));
  if (!dtype) throw Error(ErrorCode::kUnsupported, fmt::format("tensors of dtype torch.{}", graph.name(ref)));
  return *dtype;
}

// The layout, from `torch.serialization._get_layout('torch.strided')`.
Layout layout_of(const Graph& graph, Ref ref) {
  if (class_of_object(graph, ref) == DcpReducer::kLayout && graph.size(graph.args(ref)) == 1) {
    const Ref name = graph.item(graph.args(ref), 0);
    for (int i = 0; name.kind() == Kind::kString && i <= static_cast<int>(Layout::kJagged); ++i)
      if (graph.text(name) == name_of(static_cast<Layout>(i))) return static_cast<Layout>(i);
    if (name.kind() == Kind::kString)
      throw Error(ErrorCode::kUnsupported, fmt::format("tensors of layout {}", graph.text(name)));
  }
  broken_metadata("the layout of a tensor is no torch layout");
}

// An enum member, by value (class(0)) or by name (getattr(class, "TORCH_CONTIGUOUS_FORMAT")).
MemoryFormat memory_format_of(const Graph& graph, Ref ref) {
  if (class_of_object(graph, ref) == DcpReducer::kMemoryFormat && graph.size(graph.args(ref)) == 1) {
    const std::int64_t value = integer_of(graph, graph.item(graph.args(ref), 0), "a memory format");
    if (value >= 0 && value <= 2) return static_cast<MemoryFormat>(value);
    throw Error(ErrorCode::kUnsupported, fmt::format("tensors of memory format {}", value));
  }
  if (ref.kind() == Kind::kObject && graph.is_global(graph.callable(ref), "builtins", "getattr") &&
      graph.size(graph.args(ref)) == 2) {
    const Ref owner = graph.item(graph.args(ref), 0);
    const Ref name = graph.item(graph.args(ref), 1);
    if (owner.kind() == Kind::kGlobal && name.kind() == Kind::kString &&
        DcpReducer::class_of(graph.module(owner), graph.name(owner)) == DcpReducer::kMemoryFormat) {
      if (graph.text(name) == "TORCH_CONTIGUOUS_FORMAT") return MemoryFormat::kContiguous;
      if (graph.text(name) == "TORCH_CHANNELS_LAST") return MemoryFormat::kChannelsLast;
      if (graph.text(name) == "TORCH_PRESERVE_FORMAT") return MemoryFormat::kPreserve;
      throw Error(ErrorCode::kUnsupported, fmt::format("tensors of memory format {}", graph.text(name)));
    }
  }
  broken_metadata("the memory format of a tensor is none that torch has");
}

}  // namespace

DcpReducer::Class DcpReducer::class_of(std::string_view module, std::string_view name) {
  if (module == "torch" && name == "Size") return kSize;
  if (module == "torch.serialization" && name == "_get_layout") return kLayout;
  if (module == "pathlib" || module == "pathlib._local") {
    return name == "PosixPath" || name == "PurePosixPath" || name == "WindowsPath" ||
                   name == "PureWindowsPath"
               ? kPath
               : kOther;
  }
  const bool metadata = module == "torch.distributed.checkpoint.metadata" ||
                        module == "torch.distributed._shard.checkpoint.metadata";
  if (metadata || module == "torch.distributed._shard.sharded_tensor.metadata") {
    if (name == "TensorProperties") return kProperties;
    if (name == "_MEM_FORMAT_ENCODING" || name == "MEM_FORMAT_ENCODING") return kMemoryFormat;
  }
  if (metadata) {
    if (name == "ChunkStorageMetadata") return kChunk;
    if (name == "TensorStorageMetadata") return kTensor;
    if (name == "BytesStorageMetadata") return kBytes;
    if (name == "MetadataIndex") return kIndex;
    if (name == "StorageMeta") return kStorageMeta;
    if (name == "Metadata") return kMetadata;
  }
  if (name == "_StorageInfo" && (module == "torch.distributed.checkpoint.filesystem" ||
                                 module == "torch.distributed._shard.checkpoint.filesystem")) {
    return kInfo;
  }
  return kOther;
}

std::uint32_t DcpReducer::class_id(std::string_view module, std::string_view name) {
  const Class known = class_of(module, name);
  if (known == kMetadata) written_as = module.substr(0, module.size() - std::string_view(".metadata").size());
  switch (known) {
    case kSize:
    case kChunk:
    case kProperties:
    case kTensor:
    case kIndex:
    case kInfo: return known;
    default: return 0;
  }
}

bool DcpReducer::called(const Graph& graph, std::uint32_t class_id, Ref args, Ref& made) {
  if (class_id != kSize) return false;
  if (graph.size(args) != 1) broken_metadata("torch.Size called with other than one argument");
  made = handle(kSizeHandle, size_of(graph, graph.item(args, 0)));
  return true;
}

bool DcpReducer::built(const Graph& graph, std::uint32_t class_id, Ref args, Ref state, Ref& made) {
  if (class_id != kSize && graph.size(args) != 0) broken_metadata("a class of DCP is made with arguments");
  switch (class_id) {
    case kChunk: made = handle(kChunkHandle, build_chunk(graph, state)); return true;
    case kTensor: made = build_tensor(graph, state); return true;
    case kIndex: made = build_index(graph, state); return true;
    case kInfo: made = build_info(graph, state); return true;
    case kProperties: made = handle(kPropertiesHandle, properties_of(graph, state)); return true;
    default: return false;
  }
}

std::uint32_t DcpReducer::checked_dims(const std::int64_t* dims, std::size_t rank) {
  for (std::size_t i = 0; i < rank; ++i)
    if (dims[i] < 0) broken_metadata(fmt::format("a size or offset of {}", dims[i]));
  budget_.take((rank + 1) * sizeof(*dims));
  return rows.dims.add(dims, static_cast<std::uint32_t>(rank));
}

std::uint32_t DcpReducer::size_of(const Graph& graph, Ref ref) {
  if (is_handle(graph, ref, kSizeHandle)) return static_cast<std::uint32_t>(graph.handle_index(ref));
  if (class_of_object(graph, ref) == kSize && graph.size(graph.args(ref)) == 1)
    ref = graph.item(graph.args(ref), 0);
  if (is_handle(graph, ref, kSizeHandle)) return static_cast<std::uint32_t>(graph.handle_index(ref));
  if (ref.kind() != Kind::kTuple && ref.kind() != Kind::kList)
    broken_metadata("a size that is no torch.Size");
  if (graph.size(ref) > limits_.tensor_rank) {
    throw Error(ErrorCode::kLimit,
                fmt::format("{} dimensions, more than {}", graph.size(ref), limits_.tensor_rank));
  }
  std::array<std::int64_t, 256> dims{};
  std::size_t rank = 0;
  graph.each(ref, [&](Ref item) {
    dims[rank++] = integer_of(graph, item, "a dimension");
    return rank < dims.size();
  });
  return checked_dims(dims.data(), rank);
}

// A value nobody here knows, kept as plain data. Sizes inside it are handles by now. It may lie five
// containers deep in the file (in a chunk), and counts as if it did.
Value DcpReducer::plain_value(const Graph& graph, Ref ref) {
  const auto leaf = [this](const Graph& g, Ref part, Value& value) {
    if (!is_handle(g, part, kSizeHandle)) return false;
    const Shape shape = rows.dims.shape(static_cast<std::uint32_t>(g.handle_index(part)));
    budget_.take(2 * block_bytes(shape.rank() * sizeof(Value)));  // a list that grows
    Tuple dims;
    for (const std::int64_t dim : shape) dims.items.emplace_back(dim);
    value = std::move(dims);
    return true;
  };
  Limits inside = limits_;
  inside.depth -= std::min(inside.depth, 5U);
  return pickle::to_value(graph, ref, leaf, budget_, inside);
}

Dict DcpReducer::extra_of(const Graph& graph, Ref state, std::initializer_list<std::string_view> known) {
  if (state.kind() != Kind::kDict) broken_metadata("the state of an object is not a dict");
  Dict extra;
  Ref key;
  std::size_t position = 0;
  graph.each(state, [&](Ref element) {
    if (position++ % 2 == 0) {
      key = element;
      return true;
    }
    if (key.kind() != Kind::kString) broken_metadata("an attribute whose name is no string");
    if (std::find(known.begin(), known.end(), graph.text(key)) != known.end()) return true;
    if (extra.empty()) budget_.take(kExtraNode);
    budget_.take(2 * dict_bytes(1) + text_bytes(graph.text(key)));
    std::string name(graph.text(key));
    if (extra.find(name) != nullptr)
      broken_metadata(fmt::format("an object has the attribute '{}' twice", name));
    extra.set(std::move(name), plain_value(graph, element));
    return true;
  });
  return extra;
}

std::uint64_t DcpReducer::build_chunk(const Graph& graph, Ref state) {
  must_be_dict(state, "ChunkStorageMetadata");
  const Chunk made{size_of(graph, field(graph, state, "offsets", "ChunkStorageMetadata")),
                   size_of(graph, field(graph, state, "sizes", "ChunkStorageMetadata"))};
  if (graph.size(state) > 4) {
    Dict extra = extra_of(graph, state, {"offsets", "sizes"});
    if (!extra.empty()) chunk_extra_.emplace(chunks_.size(), std::move(extra));
  }
  budget_.take(sizeof(made));
  chunks_.push_back(made);
  return chunks_.size() - 1;
}

std::uint64_t DcpReducer::chunk_of(const Graph& graph, Ref ref) {
  if (is_handle(graph, ref, kChunkHandle)) return graph.handle_index(ref);
  if (class_of_object(graph, ref) == kChunk && graph.has_state(ref))
    return build_chunk(graph, graph.state(ref));
  broken_metadata("a chunk that is no ChunkStorageMetadata");
}

// From the state tuple (dtype, layout, requires_grad, memory_format, pin_memory, ...), a finished handle,
// or an object that is still one.
std::uint64_t DcpReducer::properties_of(const Graph& graph, Ref ref) {
  if (is_handle(graph, ref, kPropertiesHandle)) return graph.handle_index(ref);
  if (class_of_object(graph, ref) == kProperties && graph.has_state(ref)) ref = graph.state(ref);
  if (ref.kind() != Kind::kTuple || graph.size(ref) < 5)
    broken_metadata("TensorProperties without its five values");
  TensorProperties made = make_properties(graph, graph.item(ref, 0), graph.item(ref, 1),
                                          bool_of(graph.item(ref, 2), "requires_grad"), graph.item(ref, 3),
                                          bool_of(graph.item(ref, 4), "pin_memory"));
  budget_.take(block_bytes((graph.size(ref) - 5) * sizeof(Value)));
  made.extra.reserve(graph.size(ref) - 5);
  for (std::size_t i = 5; i < graph.size(ref); ++i)
    made.extra.push_back(plain_value(graph, graph.item(ref, i)));
  return add_properties(std::move(made));
}

TensorProperties DcpReducer::make_properties(const Graph& graph, Ref dtype, Ref layout, bool requires_grad,
                                             Ref memory_format, bool pin_memory) {
  TensorProperties made;
  made.dtype = dtype_of(graph, dtype);
  made.layout = layout_of(graph, layout);
  made.requires_grad = requires_grad;
  made.memory_format = memory_format_of(graph, memory_format);
  made.pin_memory = pin_memory;
  return made;
}

std::uint64_t DcpReducer::add_properties(TensorProperties made) {
  // A checkpoint has few kinds of tensors. What a later torch appended may be large: it is not compared.
  const std::size_t look_back = std::min<std::size_t>(properties_.size(), made.extra.empty() ? 32 : 0);
  const std::size_t from = properties_.size() - look_back;
  for (std::size_t i = from; i < properties_.size(); ++i)
    if (properties_[i] == made) return i;
  budget_.take(2 * sizeof(made));
  properties_.push_back(std::move(made));
  return properties_.size() - 1;
}

Ref DcpReducer::build_tensor(const Graph& graph, Ref state) {
  must_be_dict(state, "TensorStorageMetadata");
  std::uint64_t properties = properties_of(graph, field(graph, state, "properties", "TensorStorageMetadata"));
  const std::uint32_t size = size_of(graph, field(graph, state, "size", "TensorStorageMetadata"));
  const Ref list = field(graph, state, "chunks", "TensorStorageMetadata");
  if (list.kind() != Kind::kList) broken_metadata("TensorStorageMetadata whose chunks are no list");
  PodVector<std::uint64_t> which;
  graph.each(list, [&](Ref item) {
    which.push_back(chunk_of(graph, item));
    return true;
  });
  // Nearly always the chunks were just made, one after the other.
  bool in_order = true;
  for (std::size_t i = 1; i < which.size(); ++i) in_order = in_order && which[i] == which[i - 1] + 1;
  const std::uint64_t first = which.empty() ? 0 : in_order ? which[0] : chunks_.size();
  if (!in_order) copy_chunks(which);
  if (Ref more; graph.find(state, kPropertiesExtra, more)) {
    Value values = plain_value(graph, more);
    if (!values.is<List>()) broken_metadata(fmt::format("{} is no list", kPropertiesExtra));
    TensorProperties extended = properties_[properties];
    extended.extra = std::move(values.get<List>());
    properties = add_properties(std::move(extended));
  }
  const Ref made = add_tensor(properties, size, first, which.size());
  if (graph.size(state) > 6) {
    Dict extra = extra_of(graph, state, {"properties", "size", "chunks", kPropertiesExtra});
    if (!extra.empty()) tensor_extra_.emplace(tensors_.size() - 1, std::move(extra));
  }
  return made;
}

void DcpReducer::copy_chunks(const PodVector<std::uint64_t>& which) {
  budget_.take(which.size(), sizeof(Chunk));
  for (const std::uint64_t at : which) {
    if (const auto extra = chunk_extra_.find(at); extra != chunk_extra_.end()) {
      budget_.take(kExtraNode + heap_bytes(extra->second));
      chunk_extra_.emplace(chunks_.size(), extra->second);
    }
    chunks_.push_back(chunks_[at]);
  }
}

Ref DcpReducer::add_tensor(std::uint64_t properties, std::uint32_t size, std::uint64_t first_chunk,
                           std::uint64_t chunks) {
  if (chunks > chunk_budget_)
    throw Error(ErrorCode::kLimit, "tensors that share far more chunks than were stored");
  chunk_budget_ -= chunks;
  const std::uint32_t rank = rows.dims.rank(size);
  const std::uint64_t bytes = checked_mul<std::uint64_t>(
      static_cast<std::uint64_t>(rows.dims.shape(size).numel()), item_size(properties_[properties].dtype));
  if (bytes > std::uint64_t{1} << 62) throw Error(ErrorCode::kLimit, "a tensor larger than 2^62 bytes");
  for (std::uint64_t i = first_chunk; i < first_chunk + chunks; ++i) {
    const Chunk& chunk = chunks_[i];
    if (rows.dims.rank(chunk.offsets) != rank || rows.dims.rank(chunk.sizes) != rank) {
      broken_metadata(
          fmt::format("a chunk whose offsets or sizes do not have the tensor's {} dimensions", rank));
    }
    for (std::uint32_t d = 0; d < rank; ++d)
      checked_add(rows.dims.dims(chunk.offsets)[d], rows.dims.dims(chunk.sizes)[d]);
  }
  budget_.take(sizeof(TensorRow));
  tensors_.push_back({static_cast<std::uint32_t>(properties), size, first_chunk, chunks});
  return handle(kTensorHandle, tensors_.size() - 1);
}

TensorStorageMetadata DcpReducer::make_tensor(std::uint64_t handle) const {
  const TensorRow& row = tensors_[handle];
  TensorStorageMetadata made;
  made.properties = properties_[row.properties];
  made.size = rows.dims.shape(row.size);
  made.chunks.reserve(row.chunks);
  for (std::uint64_t i = row.first_chunk; i < row.first_chunk + row.chunks; ++i)
    made.chunks.push_back(Box{rows.dims.shape(chunks_[i].offsets), rows.dims.shape(chunks_[i].sizes)});
  for (auto extra = chunk_extra_.lower_bound(row.first_chunk);
       extra != chunk_extra_.end() && extra->first < row.first_chunk + row.chunks; ++extra)
    made.chunk_extra.emplace_back(extra->first - row.first_chunk, extra->second);
  if (const auto extra = tensor_extra_.find(handle); extra != tensor_extra_.end()) made.extra = extra->second;
  return made;
}

std::uint64_t DcpReducer::memory_of(std::uint64_t handle) const {
  const TensorRow& row = tensors_[handle];
  const std::uint64_t shape = heap_bytes_of_rank(rows.dims.rank(row.size));
  std::uint64_t bytes = heap_bytes(properties_[row.properties].extra) + shape +
                        block_bytes(row.chunks * sizeof(Box)) + 2 * row.chunks * shape;
  if (const auto extra = tensor_extra_.find(handle); extra != tensor_extra_.end())
    bytes += heap_bytes(extra->second);
  for (auto extra = chunk_extra_.lower_bound(row.first_chunk);
       extra != chunk_extra_.end() && extra->first < row.first_chunk + row.chunks; ++extra)
    bytes += kExtraNode + heap_bytes(extra->second);
  return bytes;
}

Ref DcpReducer::add_key(std::uint32_t name, std::uint32_t dims, std::int64_t hint) {
  StorageRows::Key key{name, dims, StorageRows::kNoHint};
  if (hint >= 0 && hint <= INT32_MAX) key.hint = static_cast<std::int32_t>(hint);
  budget_.take(sizeof(key) + kNameBytes);
  rows.keys.push_back(key);
  return handle(kIndexHandle, rows.keys.size() - 1);
}

Ref DcpReducer::add_place(std::uint32_t file, std::int64_t offset, std::int64_t length,
                          std::uint32_t transforms) {
  if (offset < 0 || length < 0)
    broken_metadata(fmt::format("an item of {} bytes at offset {}", length, offset));
  checked_add(offset, length);
  budget_.take(sizeof(StorageRows::Place));
  rows.places.push_back({file, transforms, offset, length});
  return handle(kInfoHandle, rows.places.size() - 1);
}

Ref DcpReducer::build_index(const Graph& graph, Ref state) {
  must_be_dict(state, "MetadataIndex");
  const Ref fqn = field(graph, state, "fqn", "MetadataIndex");
  if (fqn.kind() != Kind::kString) broken_metadata("MetadataIndex whose fqn is no string");
  std::uint32_t dims = StorageRows::kNoOffset;
  Ref offset;
  Ref hint;
  if (graph.find(state, "offset", offset) && offset.kind() != Kind::kNone) dims = size_of(graph, offset);
  std::int64_t hint_value = -1;
  if (graph.find(state, "index", hint) && hint.kind() != Kind::kNone)
    hint_value = integer_of(graph, hint, "an index hint");
  const std::string_view name = graph.text(fqn);
  if (name.size() > limits_.name_bytes) {
    throw Error(ErrorCode::kLimit,
                fmt::format("a name of {} bytes, more than {}", name.size(), limits_.name_bytes));
  }
  const Ref made = add_key(rows.names.intern(name), dims, hint_value);
  Dict extra = extra_of(graph, state, {"fqn", "offset", "index"});
  if (!extra.empty()) rows.key_extra[rows.keys.size() - 1] = std::move(extra);
  return made;
}

Ref DcpReducer::build_info(const Graph& graph, Ref state) {
  must_be_dict(state, "_StorageInfo");
  const Ref path = field(graph, state, "relative_path", "_StorageInfo");
  if (path.kind() != Kind::kString) broken_metadata("_StorageInfo whose relative_path is no string");
  std::vector<std::string> transforms;  // an empty list says nothing, and is kept with the unknown attributes
  Ref list;
  if (graph.find(state, "transform_descriptors", list) && list.kind() != Kind::kNone) {
    if (list.kind() != Kind::kList && list.kind() != Kind::kTuple)
      broken_metadata("transform_descriptors that are no list");
    budget_.take(block_bytes(graph.size(list) * sizeof(std::string)));
    transforms.reserve(graph.size(list));
    graph.each(list, [&](Ref item) {
      if (item.kind() != Kind::kString) broken_metadata("a transform descriptor that is no string");
      budget_.take(5 * text_bytes(graph.text(item)) +
                   32);  // here, in the rows, and as what tells lists apart
      transforms.emplace_back(graph.text(item));
      return true;
    });
  }
  check_relative_path(graph.text(path), limits_);
  const std::int64_t offset = integer_of(graph, field(graph, state, "offset", "_StorageInfo"), "an offset");
  const std::int64_t length = integer_of(graph, field(graph, state, "length", "_StorageInfo"), "a length");
  const Ref made = add_place(rows.file_id(graph.text(path)), offset, length, rows.transforms_id(transforms));
  Dict extra = extra_of(
      graph, state,
      {"relative_path", "offset", "length", transforms.empty() ? "length" : "transform_descriptors"});
  if (!extra.empty()) rows.place_extra[rows.places.size() - 1] = std::move(extra);
  return made;
}

Ref DcpReducer::index_handle(const Graph& graph, Ref ref) {
  if (is_handle(graph, ref, kIndexHandle)) return ref;
  if (class_of_object(graph, ref) == kIndex && graph.has_state(ref))
    return build_index(graph, graph.state(ref));
  return Ref{};
}

Ref DcpReducer::info_handle(const Graph& graph, Ref ref) {
  if (is_handle(graph, ref, kInfoHandle)) return ref;
  if (class_of_object(graph, ref) == kInfo && graph.has_state(ref))
    return build_info(graph, graph.state(ref));
  return Ref{};
}

Ref DcpReducer::tensor_handle(const Graph& graph, Ref ref) {
  if (is_handle(graph, ref, kTensorHandle)) return ref;
  if (class_of_object(graph, ref) == kTensor && graph.has_state(ref))
    return build_tensor(graph, graph.state(ref));
  return Ref{};
}

}  // namespace cairn
