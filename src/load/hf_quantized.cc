#include "load/hf_quantized.h"

#include <string>
#include <utility>

#include "base/checked.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"

namespace cairn {
namespace {

// The name of the tensor that scales of this name belong to; nullopt for other names.
std::optional<std::pair<std::string, Scheme>> scaled_by(std::string_view name) {
  const auto with_ending = [&](std::string_view ending, std::string_view other) {
    return std::string(name.substr(0, name.size() - ending.size())).append(other);
  };
  if (name.ends_with(".weight_scale_inv"))
    return std::pair(with_ending(".weight_scale_inv", ".weight"), Scheme::kBlockScales);
  if (name.ends_with("_scales")) return std::pair(with_ending("_scales", "_blocks"), Scheme::kMxfp4);
  return std::nullopt;
}

// The last two dimensions, groups and the bytes of one, are as many numbers as twice their product.
Shape joined(const Shape& shape, bool is_offset, std::int64_t group_bytes) {
  Shape result(shape.rank() - 1, 0);
  for (std::size_t d = 0; d + 1 < result.rank(); ++d) result[d] = shape[d];
  const std::int64_t groups = shape[shape.rank() - 2];
  const std::int64_t bytes = is_offset ? group_bytes : shape[shape.rank() - 1];
  result[result.rank() - 1] = checked_mul<std::int64_t>(checked_mul<std::int64_t>(groups, bytes), 2);
  return result;
}

bool is_mxfp4(const TensorStorageMetadata& tensor) {
  return tensor.properties.dtype == DType::kUInt8 && tensor.size.rank() >= 2;
}

// The same places, under the offsets that the chunks have when they are dequantised.
StorageData dequantized_places(const Metadata& stored, const QuantizedTensors& quantized) {
  MapByName<std::string_view, std::int64_t> group_bytes;  // of MXFP4 tensors
  for (const auto& [position, how] : quantized) {
    if (how.scheme != Scheme::kMxfp4) continue;
    const auto& [name, entry] = stored.state_dict_metadata[position];
    const Shape& size = std::get<TensorStorageMetadata>(entry).size;
    group_bytes.emplace(name, size[size.rank() - 1]);
  }
  StorageData places;
  for (std::size_t i = 0; i < stored.storage_data.size(); ++i) {
    MetadataIndex index = stored.storage_data.index(i);
    const auto group = group_bytes.find(index.fqn);
    if (group != group_bytes.end()) index.offset = joined(*index.offset, true, group->second);
    places.add(index, stored.storage_data.info(i));
  }
  return places;
}

}  // namespace

QuantizedTensors find_quantized(const Metadata& stored, const NameTable& names) {
  QuantizedTensors found;
  const auto& entries = stored.state_dict_metadata;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto scaled = scaled_by(entries[i].first);
    if (!scaled) continue;
    const auto position = names.find(scaled->first);
    if (!position) continue;
    const auto& tensor = std::get<TensorStorageMetadata>(entries[*position].second);
    if (scaled->second == Scheme::kBlockScales || is_mxfp4(tensor))
      found.emplace(*position, QuantizedTensor{scaled->second, i});
  }
  return found;
}

Metadata dequantized_view(const Metadata& stored, const QuantizedTensors& quantized, DType to) {
  Metadata shown = stored;
  shown.storage_data = dequantized_places(stored, quantized);
  for (const auto& [position, how] : quantized) {
    auto& tensor = std::get<TensorStorageMetadata>(shown.state_dict_metadata[position].second);
    tensor.properties.dtype = to;
    if (how.scheme != Scheme::kMxfp4) continue;
    const std::int64_t group_bytes = tensor.size[tensor.size.rank() - 1];
    tensor.size = joined(tensor.size, false, group_bytes);
    for (Box& chunk : tensor.chunks)
      chunk = {joined(chunk.offsets, true, group_bytes), joined(chunk.sizes, false, group_bytes)};
  }
  return shown;
}

}  // namespace cairn
