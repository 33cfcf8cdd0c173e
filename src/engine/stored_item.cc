#include "engine/stored_item.h"

#include <fmt/format.h>

#include <utility>

namespace cairn {
namespace {

constexpr std::uint64_t kArchiveBytes = 1 << 20;

std::string kind_of(const Value& value) {
  if (const auto* opaque = value.get_if<Opaque>()) return "an object of class " + opaque->class_name;
  return "not one tensor but " + to_string(value, 60);
}

}  // namespace

Error from_start_of_file(const Error& e, std::uint64_t offset, const std::string& file) {
  Error moved(e.code(), e.message());
  moved.in_file(e.file()).in_file(file).of_tensor(e.tensor()).while_doing(e.doing()).with_errno(e.os_error());
  moved.at(e.offset().value_or(0) + offset);
  return moved;
}

// The declared size, twice in case it was stored in a wider type, and the archive around it.
std::uint64_t most_tensor_bytes(const Box& chunk, DType dtype) {
  const auto elements = static_cast<std::uint64_t>(chunk.volume());
  return saturating_add(saturating_mul(saturating_mul(elements, item_size(dtype)), 2), kArchiveBytes);
}

std::uint64_t most_object_bytes(std::uint64_t stored, const Limits& limits) {
  return saturating_add(limits.torch_pickle_bytes, saturating_mul(stored, 32));
}

std::unique_ptr<TorchFile> open_item_archive(std::shared_ptr<const ByteSource> item, const Limits& limits) {
  return TorchFile::open(std::move(item), {limits.blob_pickle_bytes, limits.blob_zip_entries}, limits);
}

const TorchFile::Stored& chunk_in(const TorchFile& file, const Box& chunk) {
  const auto* tensor = file.root().get_if<StoredTensor>();
  if (tensor == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the stored item is " + kind_of(file.root()));
  }
  if (tensor->shape == chunk.sizes) return file.tensors().at(tensor->id);
  throw Error(ErrorCode::kCorrupt, fmt::format("the stored item has the shape {}, the metadata says {}",
                                               to_string(tensor->shape), to_string(chunk.sizes)));
}

Value load_object(std::shared_ptr<const ByteSource> item, const Limits& limits) {
  const auto file = TorchFile::open(std::move(item), {limits.torch_pickle_bytes, limits.zip_entries}, limits);
  Value value = file->load();
  if (auto* opaque = value.get_if<Opaque>()) {
    opaque->pickle = file->zip().read(*file->zip().find("data.pkl"), limits.torch_pickle_bytes);
  }
  return value;
}

}  // namespace cairn
