#include "elements.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cairn/error.h"

namespace cairn::cli {
namespace {

constexpr std::int64_t kPieceBytes = 64 << 20;
constexpr std::size_t kBlock = 16 << 10;  // elements converted at a time: they stay in the cache

DType wide_type(Family family) {
  switch (family) {
    case Family::kReal: return DType::kFloat64;
    case Family::kSigned: return DType::kInt64;
    case Family::kComplex: return DType::kComplex128;
    default: return DType::kUInt64;
  }
}

// Cuts a shape into boxes of at most `most` elements that follow one another in row-major order: whole
// along the last dimensions, ranges along one, single positions along the first.
template <class F> void each_piece(const Shape& shape, std::int64_t most, F&& f) {
  std::size_t cut = shape.rank();
  std::int64_t inner = 1;
  while (cut > 0 && inner <= most / std::max<std::int64_t>(1, shape[cut - 1])) inner *= shape[--cut];
  if (cut == 0) return f(Box::whole(shape));
  --cut;
  const std::int64_t rows = std::max<std::int64_t>(1, most / inner);
  Box piece = Box::whole(shape);
  for (std::size_t d = 0; d < cut; ++d) piece.sizes[d] = 1;
  while (true) {
    for (std::int64_t row = 0; row < shape[cut]; row += rows) {
      piece.offsets[cut] = row;
      piece.sizes[cut] = std::min(rows, shape[cut] - row);
      f(piece);
    }
    std::size_t d = cut;
    while (d > 0 && ++piece.offsets[d - 1] == shape[d - 1]) piece.offsets[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace

Family family_of(DType dtype) {
  switch (dtype) {
    case DType::kBool: return Family::kBool;
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64: return Family::kUnsigned;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64: return Family::kSigned;
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128: return Family::kComplex;
    case DType::kFloat4E2M1FNx2: return Family::kPacked;
    default: return Family::kReal;
  }
}

Element Block::operator[](std::size_t i) const {
  Element e;
  switch (family) {
    case Family::kReal: e.real = static_cast<const double*>(data)[i]; break;
    case Family::kComplex:
      e.real = static_cast<const double*>(data)[2 * i];
      e.imaginary = static_cast<const double*>(data)[2 * i + 1];
      break;
    default: e.bits = static_cast<const std::uint64_t*>(data)[i]; break;
  }
  return e;
}

std::span<const double> Block::magnitudes(std::vector<double>& scratch) const {
  if (family == Family::kReal) return {static_cast<const double*>(data), count};
  scratch.resize(count);
  if (family == Family::kComplex) {
    const double* parts = static_cast<const double*>(data);
    for (std::size_t i = 0; i < count; ++i) scratch[i] = std::hypot(parts[2 * i], parts[2 * i + 1]);
  } else if (family == Family::kSigned) {
    std::copy_n(static_cast<const std::int64_t*>(data), count, scratch.begin());
  } else {
    std::copy_n(static_cast<const std::uint64_t*>(data), count, scratch.begin());
  }
  return scratch;
}

SelectedTensor::SelectedTensor(const Checkpoint& checkpoint, std::size_t tensor, const Selection& selection)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      summary_(checkpoint.tensors()[tensor]),
      selection_(selection),
      shape_(summary_.shape) {
  for (std::size_t d = selection_.size(); d < shape_.rank(); ++d) selection_.push_back({0, shape_[d], 1});
  for (std::size_t d = 0; d < shape_.rank(); ++d) shape_[d] = selection_[d].count;
  numel_ = shape_.numel();
  check_growth();
}

// A tensor of a torch.save file may repeat a few elements as often as it likes; nobody waits for all of them.
void SelectedTensor::check_growth() const {
  constexpr std::int64_t kFree = 1LL << 30;
  constexpr std::uint64_t kMostGrowth = 1024;
  if (checkpoint_.format() != Format::kTorchFile || numel_ <= kFree) return;
  std::uint64_t stored = 0;
  for (const ChunkPlace& chunk : checkpoint_.chunks(tensor_)) stored += chunk.length;
  if (static_cast<std::uint64_t>(numel_) / kMostGrowth <= stored) return;
  throw Error(ErrorCode::kLimit, "its elements are said to be in " + std::to_string(stored) +
                                     " stored bytes; select a part of it, as in NAME[0:16]")
      .of_tensor(std::string(summary_.name));
}

Tensor SelectedTensor::read(const Box& piece) {
  if (whole_) return *whole_;
  Selection part = selection_;
  for (std::size_t d = 0; d < part.size(); ++d)
    part[d] = {part[d].start + piece.offsets[d] * part[d].step, piece.sizes[d], part[d].step};
  Tensor data = checkpoint_.read_at(tensor_, part);
  if (piece.sizes == shape_) whole_ = data;
  return data;
}

void SelectedTensor::each_block(const Visit& visit, const IsWanted& is_wanted) {
  if (numel_ == 0) return;
  const std::int64_t most = kPieceBytes / static_cast<std::int64_t>(item_size(summary_.dtype));
  std::int64_t first = 0;
  each_piece(shape_, most, [&](const Box& piece) {
    const std::int64_t count = piece.volume();
    if (!is_wanted || is_wanted(first, count)) visit_piece(piece, first, visit);
    first += count;
  });
}

void SelectedTensor::visit_piece(const Box& piece, std::int64_t first, const Visit& visit) {
  const Tensor data = read(piece);
  const Family kind = family();
  const DType stored = kind == Family::kPacked ? DType::kUInt8 : summary_.dtype;
  const std::size_t total = static_cast<std::size_t>(piece.volume());
  std::vector<double> wide(std::min(kBlock, total) * (kind == Family::kComplex ? 2 : 1));
  for (std::size_t done = 0; done < total; done += kBlock) {
    const std::size_t count = std::min(kBlock, total - done);
    const Shape shape{static_cast<std::int64_t>(count)};
    std::byte* from = data.view().data + done * item_size(stored);
    copy(TensorView::contiguous(from, stored, shape),
         TensorView::contiguous(wide.data(), wide_type(kind), shape));
    visit({kind, first + static_cast<std::int64_t>(done), count, wide.data()});
  }
}

}  // namespace cairn::cli
