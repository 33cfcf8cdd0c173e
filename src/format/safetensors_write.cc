#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/utf8.h"
#include "format/json_scanner.h"
#include "format/names.h"
#include "format/safetensors.h"

namespace cairn {
namespace {

void append_string(std::string& json, std::string_view text) {
  if (!is_utf8(text))
    throw Error(ErrorCode::kInvalidArgument, "safetensors can hold only names and texts in UTF-8");
  append_json_string(json, text, JsonText::kUtf8);
}

void append_metadata(std::string& json, const std::vector<std::pair<std::string, std::string>>& metadata) {
  const auto key_at = [&](std::size_t i) { return std::string_view(metadata[i].first); };
  if (const auto twice = find_duplicate(metadata.size(), key_at)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the metadata has the key '{}' twice", metadata[*twice].first));
  }
  json += "\"__metadata__\":{";
  for (std::size_t i = 0; i < metadata.size(); ++i) {
    if (i > 0) json += ',';
    append_string(json, metadata[i].first);
    json += ':';
    append_string(json, metadata[i].second);
  }
  json += '}';
}

// The shape as the file has it: F4 counts half bytes.
Shape stored_shape(const SafetensorsEntry& tensor) {
  Shape shape = tensor.shape;
  if (tensor.dtype != DType::kFloat4E2M1FNx2) return shape;
  if (shape.rank() == 0)
    throw Error(ErrorCode::kUnsupported, "safetensors cannot hold pairs of F4 without a dimension");
  std::int64_t& last = shape[shape.rank() - 1];
  last = checked_mul<std::int64_t>(last, 2);
  return shape;
}

// Appends one member, its data from `begin` on; fills in the entry's bytes.
void append_tensor(std::string& json, SafetensorsEntry& tensor, std::uint64_t begin) {
  const auto dtype = safetensors_name(tensor.dtype);
  if (!dtype) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("safetensors cannot hold elements of type {}", name_of(tensor.dtype)));
  }
  if (tensor.name == "__metadata__") {
    throw Error(ErrorCode::kInvalidArgument, "safetensors keeps this name for itself");
  }
  tensor.bytes =
      checked_mul<std::uint64_t>(static_cast<std::uint64_t>(tensor.shape.numel()), item_size(tensor.dtype));
  append_string(json, tensor.name);
  const Shape shape = stored_shape(tensor);
  json += fmt::format(":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", *dtype,
                      fmt::join(shape.begin(), shape.end(), ","), begin, checked_add(begin, tensor.bytes));
}

}  // namespace

std::string make_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                    const std::vector<std::pair<std::string, std::string>>& metadata,
                                    std::uint64_t alignment) {
  const auto name_at = [&](std::size_t i) { return std::string_view(tensors[i].name); };
  if (const auto twice = find_duplicate(tensors.size(), name_at)) {
    throw Error(ErrorCode::kInvalidArgument, "two tensors have this name").of_tensor(tensors[*twice].name);
  }
  std::string header(8, '\0');
  header += '{';
  if (!metadata.empty()) append_metadata(header, metadata);
  std::uint64_t end = 0;
  for (SafetensorsEntry& tensor : tensors) {
    if (header.back() != '{') header += ',';
    try {
      append_tensor(header, tensor, end);
    } catch (Error& e) {
      e.of_tensor(tensor.name);
      throw;
    }
    tensor.offset = end;
    end += tensor.bytes;
  }
  header += '}';
  alignment = std::max<std::uint64_t>(alignment, 1);
  if (const std::uint64_t past = header.size() % alignment; past != 0) header.append(alignment - past, ' ');
  const std::uint64_t length = header.size() - 8;
  if (length > Limits().safetensors_header_bytes) {
    throw Error(ErrorCode::kLimit,
                fmt::format("the header would have {} bytes, more than the {} that readers take", length,
                            Limits().safetensors_header_bytes));
  }
  store(header.data(), length);
  for (SafetensorsEntry& tensor : tensors) tensor.offset += header.size();
  return header;
}

void write_safetensors(ByteSink& sink, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.view().is_contiguous() || !tensor.view().device.is_cpu()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "safetensors are written from contiguous tensors in main memory")
          .of_tensor(name);
    }
    entries.push_back({name, tensor.view().dtype, tensor.view().shape, 0, 0});
  }
  sink.append(as_bytes(make_safetensors_header(entries, metadata)));
  for (const auto& [name, tensor] : tensors) sink.append(tensor.bytes());
}

}  // namespace cairn
