#include "cairn/dequantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "cairn/error.h"
#include "tensor/cast.h"

namespace cairn {
namespace {

constexpr std::int64_t kCodes = 256;         // of a byte
constexpr std::int64_t kWorthATable = 1024;  // elements; a table takes as long as a few hundred
constexpr std::int64_t kRun = 512;           // elements converted at a time
constexpr std::size_t kStripBlocks = 8;      // blocks whose tables stay in the nearest cache
constexpr std::array<float, 16> kFloat4 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

[[noreturn]] void refuse(std::string text) { throw Error(ErrorCode::kInvalidArgument, std::move(text)); }

void require(bool holds, const char* what) {
  if (!holds) refuse(what);
}

bool has_dense_rows(const TensorView& view) {
  return view.shape.rank() == 2 && (view.shape[1] <= 1 || view.strides[1] == 1) && view.device.is_cpu();
}

std::byte* row_of(const TensorView& view, std::int64_t row, std::int64_t column) {
  return view.data + (row * view.strides[0] + column) * static_cast<std::int64_t>(item_size(view.dtype));
}

// Calls f with a value of the unsigned type as wide as an element of `dtype`, which is 2 or 4 bytes.
template <class F> void with_width(DType dtype, const F& f) {
  if (item_size(dtype) == 4) {
    f(std::uint32_t{});
  } else {
    f(std::uint16_t{});
  }
}

// What each byte means as a number of `dtype`.
std::array<float, kCodes> numbers_of(DType dtype) {
  std::array<std::uint8_t, kCodes> codes;
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  std::array<float, kCodes> numbers;
  convert(reinterpret_cast<const std::byte*>(codes.data()), dtype,
          reinterpret_cast<std::byte*>(numbers.data()), DType::kFloat32, kCodes);
  return numbers;
}

// The same times a scale, as bit patterns of another type.
template <class Bits> class ByteTable {
 public:
  void fill(const std::array<float, kCodes>& numbers, float scale, DType to) {
    std::array<float, kCodes> scaled;
    for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] = numbers[i] * scale;
    convert(reinterpret_cast<const std::byte*>(scaled.data()), DType::kFloat32,
            reinterpret_cast<std::byte*>(bits_.data()), to, kCodes);
  }

  // Eight bytes at a time: they are read at once, and their numbers written as whole words.
  void look_up(const std::byte* from, std::byte* to, std::int64_t count) const {
    constexpr std::size_t kInWord = sizeof(std::uint64_t) / sizeof(Bits);
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8, from += 8) {
      std::uint64_t codes = 0;
      std::memcpy(&codes, from, sizeof(codes));
      for (std::size_t word = 0; word < 8 / kInWord; ++word, to += sizeof(std::uint64_t)) {
        std::uint64_t numbers = 0;
        for (std::size_t k = 0; k < kInWord; ++k, codes >>= 8)
          numbers |= std::uint64_t{bits_[codes & 0xff]} << (8 * sizeof(Bits) * k);
        std::memcpy(to, &numbers, sizeof(numbers));
      }
    }
    for (; i < count; ++i, ++from, to += sizeof(Bits))
      std::memcpy(to, &bits_[static_cast<std::uint8_t>(*from)], sizeof(Bits));
  }

 private:
  std::array<Bits, kCodes> bits_;
};

void scale_run(const std::byte* from, DType from_type, float scale, std::byte* to, DType to_type,
               std::int64_t count) {
  std::array<float, kRun> numbers;
  auto* bytes = reinterpret_cast<std::byte*>(numbers.data());
  for (std::int64_t at = 0; at < count; at += kRun) {
    const auto run = static_cast<std::size_t>(std::min(kRun, count - at));
    convert(from + at * static_cast<std::int64_t>(item_size(from_type)), from_type, bytes, DType::kFloat32,
            run);
    for (std::size_t i = 0; i < run; ++i) numbers[i] *= scale;
    convert(bytes, DType::kFloat32, to + at * static_cast<std::int64_t>(item_size(to_type)), to_type, run);
  }
}

// Some blocks beside each other, as far as they are wanted. Rows are walked over all of them, because a row
// of one block alone is too short for the memory's taste.
struct Strip {
  struct Block {
    std::int64_t column, columns;  // of `elements` and `to`
    float scale;
  };
  std::int64_t row = 0, rows = 0;
  std::array<Block, kStripBlocks> blocks;
  std::size_t count = 0;
};

template <class F>
void for_each_strip(const Shape& shape, std::int64_t row, std::int64_t column, std::int64_t block,
                    const TensorView& scales, const F& f) {
  for (std::int64_t i = 0, next_row = 0; i < shape[0]; i = next_row) {
    next_row = std::min(((row + i) / block + 1) * block - row, shape[0]);
    Strip strip{i, next_row - i, {}, 0};
    for (std::int64_t j = 0, next = 0; j < shape[1]; j = next) {
      const std::int64_t block_column = (column + j) / block;
      next = std::min((block_column + 1) * block - column, shape[1]);
      Strip::Block& added = strip.blocks[strip.count++];
      added = {j, next - j, 0};
      std::memcpy(&added.scale, row_of(scales, (row + i) / block, block_column), sizeof(added.scale));
      if (strip.count < strip.blocks.size() && next < shape[1]) continue;
      f(strip);
      strip.count = 0;
    }
  }
}

template <class Bits>
void look_up_strip(const Strip& strip, const std::array<float, kCodes>& numbers, const TensorView& elements,
                   const TensorView& to) {
  std::array<ByteTable<Bits>, kStripBlocks> tables;
  for (std::size_t b = 0; b < strip.count; ++b) tables[b].fill(numbers, strip.blocks[b].scale, to.dtype);
  for (std::int64_t row = strip.row; row < strip.row + strip.rows; ++row) {
    for (std::size_t b = 0; b < strip.count; ++b) {
      const Strip::Block& block = strip.blocks[b];
      tables[b].look_up(row_of(elements, row, block.column), row_of(to, row, block.column), block.columns);
    }
  }
}

void scale_strip(const Strip& strip, const TensorView& elements, const TensorView& to) {
  for (std::int64_t row = strip.row; row < strip.row + strip.rows; ++row)
    for (std::size_t b = 0; b < strip.count; ++b) {
      const Strip::Block& block = strip.blocks[b];
      scale_run(row_of(elements, row, block.column), elements.dtype, block.scale,
                row_of(to, row, block.column), to.dtype, block.columns);
    }
}

using Float4Table = std::array<std::array<float, 16>, kCodes>;  // by scale, then by code

const Float4Table& float4_table() {
  static const Float4Table table = [] {
    Float4Table made;
    for (int scale = 0; scale < kCodes; ++scale)
      for (std::size_t code = 0; code < 16; ++code)
        made[static_cast<std::size_t>(scale)][code] = std::ldexp(kFloat4[code], scale - 127);
    return made;
  }();
  return table;
}

// The numbers of four bytes, written as whole words.
template <class Bits>
void put_eight(const std::byte* from, const std::array<Bits, 16>& numbers, std::byte* to) {
  constexpr std::size_t kInWord = sizeof(std::uint64_t) / sizeof(Bits);
  std::uint32_t codes = 0;
  std::memcpy(&codes, from, sizeof(codes));
  for (std::size_t word = 0; word < 8 / kInWord; ++word, to += sizeof(std::uint64_t)) {
    std::uint64_t found = 0;
    for (std::size_t k = 0; k < kInWord; ++k, codes >>= 4)
      found |= std::uint64_t{numbers[codes & 0xf]} << (8 * sizeof(Bits) * k);
    std::memcpy(to, &found, sizeof(found));
  }
}

// One row of codes. `table` has the numbers of a scale as bit patterns.
template <class Bits>
void expand_row(const std::byte* codes, const std::byte* scales, std::int64_t group_bytes, std::int64_t first,
                const std::array<std::array<Bits, 16>, kCodes>& table, std::byte* to, std::int64_t count) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Bits));
  const auto put = [&](std::int64_t at, Bits bits) { std::memcpy(to + at * kWidth, &bits, sizeof(Bits)); };
  const std::int64_t per_group = 2 * group_bytes;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = first + done;
    const std::int64_t group = at / per_group;
    const std::int64_t end = std::min(count, (group + 1) * per_group - first);
    const std::array<Bits, 16>& numbers = table[static_cast<std::uint8_t>(scales[group])];
    const auto code = [&](std::int64_t number) { return static_cast<std::uint8_t>(codes[number / 2]); };
    if (at % 2 != 0) put(done++, numbers[code(at) >> 4]);
    for (; done + 8 <= end; done += 8) put_eight(codes + (first + done) / 2, numbers, to + done * kWidth);
    for (; done + 2 <= end; done += 2) {
      put(done, numbers[code(first + done) & 0xf]);
      put(done + 1, numbers[code(first + done) >> 4]);
    }
    if (done < end) {
      put(done, numbers[code(first + done) & 0xf]);
      ++done;
    }
  }
}

template <class Bits> std::array<std::array<Bits, 16>, kCodes> float4_bits(DType to) {
  std::array<std::array<Bits, 16>, kCodes> bits;
  convert(reinterpret_cast<const std::byte*>(float4_table().data()), DType::kFloat32,
          reinterpret_cast<std::byte*>(bits.data()), to, 16 * kCodes);
  return bits;
}

}  // namespace

bool is_dequantized_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

void dequantize_blocks(const TensorView& elements, std::int64_t row, std::int64_t column, std::int64_t block,
                       const TensorView& scales, const TensorView& to) {
  require(has_dense_rows(elements) && has_dense_rows(to) && has_dense_rows(scales),
          "block-scaled elements are matrices with dense rows in main memory");
  require(elements.shape == to.shape, "elements and their destination differ in shape");
  require(is_dequantized_type(to.dtype) && scales.dtype == DType::kFloat32,
          "elements are dequantised with float32 scales, to float32, bfloat16 or float16");
  require(block > 0 && row >= 0 && column >= 0, "a block has at least one element, and a place");
  if (to.numel() == 0) return;
  if ((row + to.shape[0] - 1) / block >= scales.shape[0] ||
      (column + to.shape[1] - 1) / block >= scales.shape[1]) {
    refuse(fmt::format("{} scales are too few for elements up to ({}, {}) in blocks of {}",
                       to_string(scales.shape), row + to.shape[0], column + to.shape[1], block));
  }
  const bool is_byte = item_size(elements.dtype) == 1;
  const std::array<float, kCodes> numbers =
      is_byte ? numbers_of(elements.dtype) : std::array<float, kCodes>{};
  for_each_strip(to.shape, row, column, block, scales, [&](const Strip& strip) {
    if (!is_byte || strip.rows * strip.blocks[0].columns < kWorthATable)
      return scale_strip(strip, elements, to);
    with_width(to.dtype, [&](auto bits) { look_up_strip<decltype(bits)>(strip, numbers, elements, to); });
  });
}

void dequantize_mxfp4(const TensorView& codes, const TensorView& scales, std::int64_t first,
                      const TensorView& to) {
  require(has_dense_rows(codes) && has_dense_rows(scales) && has_dense_rows(to),
          "MXFP4 numbers are matrices with dense rows in main memory");
  require(is_dequantized_type(to.dtype) && codes.dtype == DType::kUInt8 && scales.dtype == DType::kUInt8,
          "MXFP4 numbers and scales are bytes, dequantised to float32, bfloat16 or float16");
  const std::int64_t rows = to.shape[0], groups = scales.shape[1];
  if (to.numel() == 0) return;
  require(codes.shape[0] == rows && scales.shape[0] == rows && groups > 0 && codes.shape[1] % groups == 0,
          "MXFP4 numbers, scales and their destination differ in shape");
  require(first >= 0 && first + to.shape[1] <= 2 * codes.shape[1], "fewer MXFP4 numbers than are wanted");
  const std::int64_t group_bytes = codes.shape[1] / groups;
  with_width(to.dtype, [&](auto bits) {
    const auto table = float4_bits<decltype(bits)>(to.dtype);
    for (std::int64_t row = 0; row < rows; ++row)
      expand_row(row_of(codes, row, 0), row_of(scales, row, 0), group_bytes, first, table, row_of(to, row, 0),
                 to.shape[1]);
  });
}

}  // namespace cairn
