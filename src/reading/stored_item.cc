#include "reading/stored_item.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace cairn {
namespace {

constexpr std::uint64_t kArchiveBytes = 1 << 20;

std::string kind_of(const Value& value) {
  if (const auto* opaque = value.get_if<Opaque>()) return "an object of class " + opaque->class_name;
  return "not one tensor but " + to_string(value, 60);
}

// data.pkl, and every storage that a tensor lies in.
std::uint64_t bytes_checked(const TorchFile& file) {
  std::set<std::string> storages;
  for (const TorchFile::Stored& stored : file.tensors()) storages.insert("data/" + stored.storage_key);
  storages.insert("data.pkl");
  std::uint64_t bytes = 0;
  for (const std::string& name : storages) {
    const ZipEntry* entry = file.zip().find(name);
    if (entry != nullptr && entry->crc != 0) bytes += entry->size;
  }
  return bytes;
}

}  // namespace

Error from_start_of_file(const Error& e, std::uint64_t offset, const std::string& file) {
  Error moved(e.code(), e.message());
  moved.in_file(e.file()).in_file(file).of_tensor(e.tensor()).while_doing(e.doing()).with_errno(e.os_error());
  moved.with_cause(e.cause()).at(e.offset().value_or(0) + offset);
  return moved;
}

// The declared size, twice in case it was stored in a wider type, and the archive around it.
std::uint64_t most_tensor_bytes(const Box& chunk, DType dtype) {
  const auto elements = static_cast<std::uint64_t>(chunk.volume());
  return saturating_add(saturating_mul(saturating_mul(elements, item_size(dtype)), 2), kArchiveBytes);
}

std::uint64_t most_object_bytes(std::uint64_t stored, const Limits& limits) {
  return std::max(limits.object_bytes, stored);
}

Limits limits_of_objects(const Limits& limits) {
  Limits all = limits;
  all.torch_pickle_bytes = std::max(limits.torch_pickle_bytes, limits.object_bytes);
  all.torch_string_bytes = std::max(limits.torch_string_bytes, limits.object_bytes);
  all.depth = std::max(limits.depth, limits.object_depth);
  all.memory_base = saturating_mul(limits.object_bytes, 2);  // of which half is for values
  all.memory_per_byte = 0;
  return all;
}

std::unique_ptr<TorchFile> open_item_archive(std::shared_ptr<const ByteSource> item, const Limits& limits) {
  return TorchFile::open(std::move(item), {limits.blob_pickle_bytes, limits.blob_zip_entries}, limits);
}

const TorchFile::Stored& chunk_in(const TorchFile& file, const Box& chunk) {
  const auto* tensor = file.root().get_if<StoredTensor>();
  if (tensor == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the stored item is " + kind_of(file.root()));
  }
  check_shape(tensor->shape, chunk);
  return file.tensors().at(tensor->id);
}

void check_shape(const Shape& stored, const Box& chunk) {
  if (stored == chunk.sizes) return;
  throw Error(ErrorCode::kCorrupt, fmt::format("the stored item has the shape {}, the metadata says {}",
                                               to_string(stored), to_string(chunk.sizes)));
}

Value load_object(std::shared_ptr<const ByteSource> item, const Limits& allowed, std::uint64_t* checked) {
  const Limits limits = limits_of_objects(allowed);
  const auto file = TorchFile::open(std::move(item), {limits.torch_pickle_bytes, limits.zip_entries}, limits);
  Value value = file->load();
  if (auto* opaque = value.get_if<Opaque>()) {
    opaque->pickle = file->zip().read(*file->zip().find("data.pkl"), limits.torch_pickle_bytes);
  }
  if (checked != nullptr) *checked = bytes_checked(*file);
  return value;
}

}  // namespace cairn
