#include "format/torch_archive.h"

#include <fmt/format.h>

#include <utility>

#include "base/hash.h"
#include "format/torch_dtype.h"

namespace cairn {
namespace {

void write_shape(pickle::Writer& w, const Shape& shape) {
  if (shape.rank() > 3) w.mark();
  for (const std::int64_t n : shape) w.integer(n);
  if (shape.rank() > 3) {
    w.tuple();
  } else {
    w.tuple(shape.rank());
  }
}

// The class that names the storage's type; nullopt when tensors in it have to name their own.
std::optional<std::string_view> typed_class(const StorageName& storage) {
  return storage.dtype ? storage_class(*storage.dtype) : std::nullopt;
}

void write_storage(pickle::Writer& w, const StorageName& storage) {
  const auto name = typed_class(storage);
  w.mark();
  w.shared_string("storage");
  if (name) {
    w.global("torch", *name);
  } else {
    w.global("torch.storage", "UntypedStorage");
  }
  w.string(storage.key);
  w.shared_string("cpu");
  w.integer(static_cast<std::int64_t>(storage.bytes / (name ? item_size(*storage.dtype) : 1)));
  w.tuple();
  w.persid();
}

}  // namespace

void write_torch_tensor(pickle::Writer& w, DType dtype, const Shape& shape, const Shape& strides,
                        std::uint64_t offset, const StorageName& storage, bool requires_grad) {
  const bool typed = typed_class(storage).has_value();
  w.global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  w.mark();
  write_storage(w, storage);
  w.integer(static_cast<std::int64_t>(offset));
  write_shape(w, shape);
  write_shape(w, strides);
  w.boolean(requires_grad);
  w.global("collections", "OrderedDict");
  w.tuple(0);
  w.reduce();
  if (!typed) w.global("torch", name_of(dtype));
  w.tuple();
  w.reduce();
}

void write_stored_tensor(pickle::Writer& w, const StoredTensor& tensor, std::uint64_t offset,
                         const StorageName& storage) {
  if (!tensor.parameter) {
    return write_torch_tensor(w, tensor.dtype, tensor.shape, tensor.strides, offset, storage,
                              tensor.requires_grad);
  }
  w.global("torch._utils", "_rebuild_parameter");
  write_torch_tensor(w, tensor.dtype, tensor.shape, tensor.strides, offset, storage);
  w.boolean(tensor.requires_grad);
  w.global("collections", "OrderedDict");
  w.tuple(0);
  w.reduce();
  w.tuple(3);
  w.reduce();
}

TorchArchive::TorchArchive(ByteSink& sink, std::string name, std::uint64_t alignment)
    : zip_(sink, std::move(name), alignment), alignment_(alignment) {}

void TorchArchive::add_head(std::string_view program) {
  const std::string alignment = std::to_string(alignment_);
  add("data.pkl", as_bytes(program));
  add(".format_version", as_bytes("1"));
  add(".storage_alignment", as_bytes(alignment));
  add("byteorder", as_bytes("little"));
}

void TorchArchive::add(std::string_view name, ByteSpan bytes) {
  const std::uint32_t crc = crc32(bytes);
  zip_.begin(name, bytes.size(), false);
  zip_.append(bytes);
  zip_.end_with_crc(crc);
  names_.append(name).push_back('\n');
  crcs_.push_back(crc);
}

void TorchArchive::begin_elsewhere(std::string_view name, std::uint64_t size) {
  zip_.begin(name, size, false);
  names_.append(name).push_back('\n');
  elsewhere_ = size;
}

void TorchArchive::end_elsewhere(std::uint32_t crc) {
  zip_.skip(std::exchange(elsewhere_, 0));
  zip_.end_with_crc(crc);
  crcs_.push_back(crc);
}

// The serialization id is 40 digits, half for the names and half for the checksums, as torch's. Its value
// means nothing to a reader; torch's own hash is not the same in two processes.
std::uint64_t TorchArchive::finish() {
  add("version", as_bytes("3\n"));
  const ByteSpan crcs{reinterpret_cast<const std::byte*>(crcs_.data()), crcs_.size() * sizeof(crcs_[0])};
  const std::string id = fmt::format("{:020}{:020}", xxh3_64(as_bytes(names_)), xxh3_64(crcs));
  zip_.add(".data/serialization_id", as_bytes(id));
  return zip_.finish();
}

}  // namespace cairn
