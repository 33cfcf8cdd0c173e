// What one stored item of a DCP checkpoint is: an archive of torch.save with one tensor or one object in it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "cairn/error.h"
#include "cairn/limits.h"
#include "cairn/tensor.h"
#include "format/torch_file.h"

namespace cairn {

inline std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

// The same failure with its place counted from the start of the file, not of the item, which begins at
// `offset`.
Error from_start_of_file(const Error& e, std::uint64_t offset, const std::string& file);

// How large an item can be once its transforms are undone.
std::uint64_t most_tensor_bytes(const Box& chunk, DType dtype);
std::uint64_t most_object_bytes(std::uint64_t stored, const Limits& limits);

// For who reads an object: its strings, lists and nesting are limited by what it takes in all.
Limits limits_of_objects(const Limits& limits);

std::unique_ptr<TorchFile> open_item_archive(std::shared_ptr<const ByteSource> item, const Limits& limits);

// The one tensor of the archive, which must have the chunk's shape: Error kCorrupt when it has another,
// kUnsupported when the archive holds something else.
const TorchFile::Stored& chunk_in(const TorchFile& file, const Box& chunk);

void check_shape(const Shape& stored, const Box& chunk);  // Error kCorrupt

// The object; one of a class that we do not know keeps the pickle as it was written, so that it can be copied
// or handed to torch unchanged. `checked` counts the bytes that the archive's own checksums vouch for.
Value load_object(std::shared_ptr<const ByteSource> item, const Limits& limits,
                  std::uint64_t* checked = nullptr);

}  // namespace cairn
