#include "checkpoint/assemble.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked.h"
#include "tensor/selection.h"

namespace cairn {
namespace {

struct Part {
  std::size_t chunk;
  Selection from;
};

void check_cover(const Selection& selection, const std::vector<Box>& boxes) {
  const std::optional<CoverProblem> problem = find_cover_problem(shape_of(selection), boxes);
  if (!problem) return;
  if (problem->kind != CoverProblem::Kind::kHole) {
    throw Error(ErrorCode::kCorrupt, "its chunks overlap: " + problem->text);
  }
  const std::optional<Box> missing = find_missing_box(selection, boxes);
  throw Error(ErrorCode::kCorrupt,
              fmt::format("no chunk holds {}; {} of the selected elements are missing",
                          missing ? to_string(*missing) : "a part of it", problem->missing));
}

void check_growth(std::uint64_t bytes, const std::vector<Part>& parts, const ChunkReader& reader) {
  if (bytes <= kFreeBytes) return;
  std::uint64_t stored = 0;
  for (const Part& part : parts) {
    // A saturating sum: more is always enough.
    if (__builtin_add_overflow(stored, reader.most_bytes(part.chunk), &stored)) return;
    if (stored >= (bytes - kFreeBytes) / kMostGrowth + 1) return;
  }
  throw Error(ErrorCode::kLimit,
              fmt::format("{} bytes of elements are said to be in {} stored bytes, which is more "
                          "than is believed; select a smaller part",
                          bytes, stored));
}

void check_chunk_rank(const Box& chunk, const Shape& shape) {
  if (chunk.offsets.rank() == shape.rank() && chunk.sizes.rank() == shape.rank()) return;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("a chunk at {} of size {} in a tensor of shape {}", to_string(chunk.offsets),
                          to_string(chunk.sizes), to_string(shape)));
}

// Which chunks a selection takes elements from, and where those go.
struct Assembly {
  Selection complete;
  std::vector<Part> parts;
  std::vector<Box> boxes;  // in the result, by part

  Assembly(const Shape& shape, const std::vector<Box>& chunks, const Selection& selection)
      : complete(complete_selection(selection, shape)) {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      check_chunk_rank(chunks[i], shape);
      std::optional<SelectedPart> part = part_in_box(complete, chunks[i]);
      if (!part) continue;
      parts.push_back({i, std::move(part->from)});
      boxes.push_back(std::move(part->to));
    }
    check_cover(complete, boxes);
  }

  void read(const ChunkReader& reader, const TensorView& to) const {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      reader.read(parts[i].chunk, parts[i].from, to.narrow(boxes[i]));
    }
  }
};

}  // namespace

Tensor assemble(std::string_view name, DType dtype, const Shape& shape, const std::vector<Box>& chunks,
                const Selection& selection, const ChunkReader& reader) {
  try {
    const Assembly assembly(shape, chunks, selection);
    const Shape result_shape = shape_of(assembly.complete);
    const auto elements = static_cast<std::uint64_t>(result_shape.numel());
    check_growth(checked_mul<std::uint64_t>(elements, item_size(dtype)), assembly.parts, reader);
    Tensor result = Tensor::empty(dtype, result_shape);
    assembly.read(reader, result.view());
    return result;
  } catch (Error& e) {
    e.of_tensor(name);
    throw;
  }
}

void assemble_into(std::string_view name, const Shape& shape, const std::vector<Box>& chunks,
                   const Selection& selection, const ChunkReader& reader, const TensorView& to) {
  try {
    const Assembly assembly(shape, chunks, selection);
    if (to.shape != shape_of(assembly.complete)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("a selection of shape {} does not go into memory of shape {}",
                              to_string(shape_of(assembly.complete)), to_string(to.shape)));
    }
    assembly.read(reader, to);
  } catch (Error& e) {
    e.of_tensor(name);
    throw;
  }
}

}  // namespace cairn
