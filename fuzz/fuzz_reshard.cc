// Cutting a stored tensor anew: every element that is wanted and stored is read once, from where it lies.
//
// An input is a rank, a shape of at most 12 in each dimension, cuts that make the stored chunks, and the
// boxes that are wanted; a byte each. Chunks may be left out, so that there are holes.
#include <numeric>
#include <vector>

#include "cairn/plan_steps.h"
#include "fuzz.h"

namespace cairn::fuzz {
namespace {

constexpr std::int64_t kMostSide = 12;

class Bytes {
 public:
  explicit Bytes(ByteSpan bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }
  std::int64_t below(std::int64_t n) {
    const auto byte = done() ? 0 : static_cast<std::int64_t>(bytes_[at_++]);
    return n <= 0 ? 0 : byte % n;
  }

 private:
  ByteSpan bytes_;
  std::size_t at_ = 0;
};

// The whole, cut again and again; some pieces are then left out.
std::vector<Box> chunks_of(Bytes& in, const Shape& shape) {
  std::vector<Box> chunks{Box::whole(shape)};
  for (std::int64_t cuts = in.below(12); cuts > 0 && shape.rank() > 0; --cuts) {
    Box& box = chunks[static_cast<std::size_t>(in.below(static_cast<std::int64_t>(chunks.size())))];
    const auto dim = static_cast<std::size_t>(in.below(static_cast<std::int64_t>(shape.rank())));
    const std::int64_t at = in.below(box.sizes[dim] + 1);
    Box rest = box;
    rest.offsets[dim] += at;
    rest.sizes[dim] -= at;
    box.sizes[dim] = at;
    chunks.push_back(rest);
  }
  for (std::int64_t lost = in.below(3); lost > 0 && chunks.size() > 1; --lost)
    chunks.erase(chunks.begin() + in.below(static_cast<std::int64_t>(chunks.size())));
  return chunks;
}

std::vector<Box> boxes_of(Bytes& in, const Shape& shape) {
  std::vector<Box> boxes;
  for (std::int64_t count = in.below(6); count > 0; --count) {
    Box box{Shape(shape.rank(), 0), Shape(shape.rank(), 0)};
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      box.offsets[d] = in.below(shape[d] + 1);
      box.sizes[d] = in.below(shape[d] - box.offsets[d] + 1);
    }
    boxes.push_back(box);
  }
  return boxes;
}

// Calls f(coordinates) for every element of a box.
template <class F> void each_element(const Box& box, F f) {
  if (box.empty()) return;
  Shape at(box.rank(), 0);
  for (;;) {
    Shape place = at;
    for (std::size_t d = 0; d < box.rank(); ++d) place[d] += box.offsets[d];
    f(place);
    std::size_t d = box.rank();
    while (d > 0 && ++at[d - 1] == box.sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

std::size_t position(const Shape& at, const Shape& shape) {
  std::size_t n = 0;
  for (std::size_t d = 0; d < shape.rank(); ++d)
    n = n * static_cast<std::size_t>(shape[d]) + static_cast<std::size_t>(at[d]);
  return n;
}

Shape sum(const Shape& a, const Shape& b) {
  require(a.rank() == b.rank(), "offsets have the tensor's dimensions");
  Shape all = a;
  for (std::size_t d = 0; d < a.rank(); ++d) all[d] += b[d];
  return all;
}

}  // namespace

void run(ByteSpan input, const Limits&) {
  Bytes in(input);
  Shape shape(static_cast<std::size_t>(in.below(4)), 0);
  for (std::size_t d = 0; d < shape.rank(); ++d) shape[d] = in.below(kMostSide + 1);
  TensorStorageMetadata stored;
  stored.size = shape;
  stored.chunks = chunks_of(in, shape);
  const std::vector<Box> wanted = boxes_of(in, shape);
  const std::vector<ReadItem> items = create_read_items_for_chunk_list("w", stored, wanted);

  const auto elements = static_cast<std::size_t>(shape.numel());
  std::vector<bool> there(elements);
  for (const Box& chunk : stored.chunks)
    each_element(chunk, [&](const Shape& at) { there[position(at, shape)] = true; });
  std::vector<std::vector<int>> times(wanted.size(), std::vector<int>(elements));
  for (const ReadItem& item : items) {
    const auto to = static_cast<std::size_t>(item.dest_index.index.value());
    const auto from = static_cast<std::size_t>(item.storage_index.index.value());
    require(to < wanted.size() && from < stored.chunks.size(), "an item names a box and a chunk there is");
    const Box read{sum(stored.chunks[from].offsets, item.storage_offsets), item.lengths};
    const Box written{sum(wanted[to].offsets, item.dest_offsets), item.lengths};
    require(read == written, "an element is read from its own place");
    require(stored.chunks[from].contains(read) && wanted[to].contains(written), "reads stay inside");
    each_element(written, [&](const Shape& at) { ++times[to][position(at, shape)]; });
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    each_element(wanted[i], [&](const Shape& at) {
      const std::size_t n = position(at, shape);
      require(times[i][n] == (there[n] ? 1 : 0), "what is wanted and stored is read once");
    });
  }
}

}  // namespace cairn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return cairn::fuzz::one_input(data, size);
}
