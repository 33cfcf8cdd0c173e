// The elements of a tensor, or of a slice of it, in bounded memory and in few types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cairn/checkpoint.h"

namespace cairn::cli {

// What kind of number an element is. Each kind is seen in one wide type, whatever is stored.
enum class Family {
  kReal,      // as double; float8 and bfloat16 too
  kSigned,    // as int64
  kUnsigned,  // as uint64
  kBool,      // as uint64, 0 or 1
  kComplex,   // as two doubles
  kPacked,    // two 4-bit floats in a byte: as uint64, the byte
};
Family family_of(DType dtype);

struct Element {
  double real = 0;  // kReal, kComplex
  double imaginary = 0;
  std::uint64_t bits = 0;  // the others; kSigned in two's complement
};

// Some consecutive elements in row-major order. The memory is valid during one call.
struct Block {
  Family family = Family::kReal;
  std::int64_t first = 0;  // position of the first in the whole selection
  std::size_t count = 0;
  const void* data = nullptr;

  Element operator[](std::size_t i) const;
  // Each as a double: integers converted, complex numbers by magnitude. `scratch` is used when needed.
  std::span<const double> magnitudes(std::vector<double>& scratch) const;
};

// A tensor of a checkpoint under a selection. Reads pieces of at most 64 MiB; a selection no larger is
// read once and kept.
class SelectedTensor {
 public:
  SelectedTensor(const Checkpoint& checkpoint, std::size_t tensor, const Selection& selection);

  const TensorSummary& summary() const { return summary_; }
  const Shape& shape() const { return shape_; }  // of the selection
  std::int64_t numel() const { return numel_; }
  Family family() const { return family_of(summary_.dtype); }

  // Visits all elements in row-major order. Pieces [first, first + count) for which `is_wanted` says no
  // are not read.
  using Visit = std::function<void(const Block&)>;
  using IsWanted = std::function<bool(std::int64_t first, std::int64_t count)>;
  void each_block(const Visit& visit, const IsWanted& is_wanted = {});

 private:
  void visit_piece(const Box& piece, std::int64_t first, const Visit& visit);
  Tensor read(const Box& piece);
  void check_growth() const;

  const Checkpoint& checkpoint_;
  std::size_t tensor_;
  TensorSummary summary_;
  Selection selection_;  // one Range for every dimension
  Shape shape_;
  std::int64_t numel_ = 0;
  std::optional<Tensor> whole_;
};

}  // namespace cairn::cli
