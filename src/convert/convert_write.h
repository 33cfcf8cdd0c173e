// Writes output files that have been laid out, in parallel and within the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/storage.h"
#include "convert/convert_layout.h"

namespace cairn {

struct WrittenFiles {
  std::uint64_t read_back = 0;       // bytes that were read again and compared
  std::uint64_t source_checked = 0;  // bytes of raw storages that were compared with the source's checksums
};

// When it returns, all files are there, read back if `options.verify`; when it throws, none of them is,
// unless one was replaced already. Errors name the tensor and the file.
WrittenFiles write_files(FileSystem& to, OutputLayout& layout, const std::vector<ConvertEntry>& entries,
                         const CheckpointSource& source, const ConvertOptions& options);

// How many threads fit the budget when each needs `bytes`.
int convert_threads(const ConvertOptions& options, std::uint64_t bytes);

// Elements `begin` to `end` of a tensor in row-major order, as boxes that follow each other. Calls
// each(box, first): the box begins with element `first`.
using EachBox = std::function<void(const Box& box, std::int64_t first)>;
void for_each_box(const Shape& shape, std::int64_t begin, std::int64_t end, const EachBox& each);

}  // namespace cairn
