// Safetensors files: an 8-byte header length, a JSON header, raw tensor bytes. Read as strictly as the
// reference implementation does, and the index file that ties a sharded model together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sink.h"
#include "base/source.h"
#include "cairn/limits.h"
#include "cairn/tensor.h"

namespace cairn {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::uint64_t offset = 0;  // of the first byte, from the start of the file
  std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;                      // in file order
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__", in file order
  std::uint64_t data_offset = 0;                              // 8 + header length
};

// Reads and checks the header; tensors must tile the rest of the file exactly.
SafetensorsHeader read_safetensors_header(const ByteSource& source, const Limits& limits = {});

// The format's name for a dtype: "F32", "BF16", ... nullopt for one it cannot hold.
std::optional<std::string_view> safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors(std::string_view name);

// Lays tensors out one after another (callers order them; the reference sorts by alignment, then name),
// and gives the file's bytes before the data, the length included, space-padded so that data starts at a
// multiple of `alignment`. Offsets and bytes of `tensors` are filled in.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                    const std::vector<std::pair<std::string, std::string>>& metadata,
                                    std::uint64_t alignment = 8);

// Writes a whole file from contiguous tensors, in the order given.
void write_safetensors(ByteSink& sink, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata = {});

// model.safetensors.index.json
struct SafetensorsIndex {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor -> file, in file order
  std::uint64_t total_size = 0;
};
SafetensorsIndex read_safetensors_index(const ByteSource& source, const Limits& limits = {});
std::string write_safetensors_index(const SafetensorsIndex& index);

// A file name inside a checkpoint directory: relative, no "..", no empty part, no NUL, within limits.
// Error kCorrupt otherwise. Shared by every format that names files.
void check_relative_path(std::string_view path, const Limits& limits);

}  // namespace cairn
