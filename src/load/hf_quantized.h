// Tensors of a Hugging Face directory that are stored in few bits with scales beside them, read as floats.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/name_table.h"
#include "cairn/hugging_face.h"
#include "cairn/metadata.h"

namespace cairn {

enum class Scheme : std::uint8_t { kBlockScales, kMxfp4 };

struct QuantizedTensor {
  Scheme scheme = Scheme::kBlockScales;
  std::size_t scales = 0;  // position of their entry in the metadata
};

// By position in the metadata. A tensor whose scales are not there is an ordinary one.
using QuantizedTensors = std::unordered_map<std::size_t, QuantizedTensor>;
QuantizedTensors find_quantized(const Metadata& stored, const NameTable& names);

// The metadata as a planner sees it: element types, shapes and chunks of what is dequantised.
Metadata dequantized_view(const Metadata& stored, const QuantizedTensors& quantized, DType to);

// What a load of quantised tensors needs to know.
struct QuantizedSource {
  const Metadata& stored;
  const Metadata& shown;  // dequantized_view(stored)
  const NameTable& names;
  const QuantizedTensors& quantized;
  const FileSystem& files;
  Dequantize dequantize;
};

// Reads those items of a plan, which all are of quantised tensors, with several threads. Errors name the
// tensor and the file: kCorrupt when the scales do not fit it, kUnsupported for a kind of quantisation that
// is none of the two.
void read_quantized(const QuantizedSource& from, const std::vector<const ReadItem*>& items,
                    LoadPlanner& planner, const ReadOptions& options, ReadReport& report);

}  // namespace cairn
