#include "tensor/transpose.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"

namespace cairn {
namespace {

constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kVectorBytes = 16;

template <class T> using Vector __attribute__((vector_size(kVectorBytes))) = T;

template <class T> constexpr std::int64_t kLanes = kVectorBytes / sizeof(T);

struct CrossedPair {
  std::uint64_t low, high;
};

// A tile is four cache lines wide on both sides: runs long enough for the memory, and a buffer that stays
// in the nearest caches. Its rows are first gathered in a buffer with an odd
// number of vectors per row, because the lines of a matrix whose stride is a power of two evict each
// other before a second visit.
constexpr std::int64_t kTileBytes = 256;
constexpr std::int64_t kBufferStride = kTileBytes + kVectorBytes;

template <class T> constexpr std::int64_t kSquareSide = kTileBytes / static_cast<std::int64_t>(sizeof(T));

// Tiles are visited down a panel of this many bytes of each row, so that the pages of the destination
// are few enough to stay in the TLB until the next row of tiles.
constexpr std::int64_t kPanelBytes = 4096;

// a0 b0 a1 b1 ... from the lower (half 0) or upper (half 1) lanes of a and b.
template <class T, int Half, int... I>
Vector<T> interleave(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
  constexpr int kFirst = Half * kLanes<T> / 2;
  return __builtin_shufflevector(a, b, (kFirst + I / 2 + (I % 2) * kLanes<T>)...);
}

// Transposes a square of kLanes x kLanes elements in registers: log2(kLanes) rounds that interleave row
// i with row i + kLanes / 2.
template <class T>
void transpose_square(const std::byte* from, std::int64_t from_stride, std::byte* to,
                      std::int64_t to_stride) {
  constexpr int kSide = kLanes<T>;
  constexpr auto kIndex = std::make_integer_sequence<int, kSide>();
  Vector<T> rows[kSide];
  for (int i = 0; i < kSide; ++i) rows[i] = load<Vector<T>>(from + i * from_stride);
#pragma GCC unroll 4
  for (int round = 1; round < kSide; round *= 2) {
    Vector<T> mixed[kSide];
#pragma GCC unroll 8
    for (int i = 0; i < kSide / 2; ++i) {
      mixed[2 * i] = interleave<T, 0>(rows[i], rows[i + kSide / 2], kIndex);
      mixed[2 * i + 1] = interleave<T, 1>(rows[i], rows[i + kSide / 2], kIndex);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) rows[i] = mixed[i];
  }
  for (int i = 0; i < kSide; ++i) store(to + i * to_stride, rows[i]);
}

// An element of 16 bytes is a vector by itself.
template <>
void transpose_square<CrossedPair>(const std::byte* from, std::int64_t, std::byte* to, std::int64_t) {
  store(to, load<CrossedPair>(from));
}

struct Part {
  std::int64_t row, rows;
  std::int64_t column, columns;
};

// Copies the part's rows to the buffer. While that waits for memory, the next tile of each row is asked
// for: rows are too many for the hardware to see them as streams.
template <class T> void gather(const Transposition& m, const Part& part, std::byte* buffer) {
  constexpr std::int64_t kItem = sizeof(T);
  const bool full = part.columns == kSquareSide<T>;
  const bool has_next = part.column + 2 * kSquareSide<T> <= m.columns;
  for (std::int64_t r = 0; r < part.rows; ++r, buffer += kBufferStride) {
    const std::byte* row = m.from + (part.row + r) * m.from_stride + part.column * kItem;
    for (std::int64_t i = 0; has_next && i < kTileBytes; i += kCacheLine) {
      __builtin_prefetch(row + kTileBytes + i);
    }
    if (full) {
      std::memcpy(buffer, row, kTileBytes);
    } else {
      std::memcpy(buffer, row, static_cast<std::size_t>(part.columns * kItem));
    }
  }
}

template <class T> void transpose_part(const Transposition& m, const Part& part) {
  constexpr std::int64_t kItem = sizeof(T);
  constexpr std::int64_t kSquare = kLanes<T>;
  alignas(kCacheLine) std::byte buffer[kSquareSide<T> * kBufferStride];
  gather<T>(m, part, buffer);
  const std::int64_t square_rows = part.rows / kSquare * kSquare;
  for (std::int64_t c = 0; c < part.columns; c += kSquare) {
    std::byte* to = m.to + (part.column + c) * m.to_stride + part.row * kItem;
    const std::int64_t columns = std::min(kSquare, part.columns - c);
    // The lines of the next columns are asked for before they are written, for the same reason.
    const bool has_next = part.column + c + 2 * kSquare <= m.columns;
    for (std::int64_t k = kSquare; has_next && k < 2 * kSquare; ++k) {
      for (std::int64_t i = 0; i < part.rows * kItem; i += kCacheLine) {
        __builtin_prefetch(to + k * m.to_stride + i, 1, 2);
      }
    }
    std::int64_t r = 0;
    for (; columns == kSquare && r < square_rows; r += kSquare) {
      transpose_square<T>(buffer + r * kBufferStride + c * kItem, kBufferStride, to + r * kItem, m.to_stride);
    }
    for (; r < part.rows; ++r) {
      for (std::int64_t k = 0; k < columns; ++k) {
        store(to + k * m.to_stride + r * kItem, load<T>(buffer + r * kBufferStride + (c + k) * kItem));
      }
    }
  }
}

template <class T> void transpose_as(const Transposition& m) {
  constexpr std::int64_t kSide = kSquareSide<T>;
  constexpr std::int64_t kPanel = kPanelBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t panel = 0; panel < m.columns; panel += kPanel) {
    const std::int64_t panel_end = std::min(panel + kPanel, m.columns);
    for (std::int64_t r = 0; r < m.rows; r += kSide) {
      for (std::int64_t c = panel; c < panel_end; c += kSide) {
        transpose_part<T>(m, {r, std::min(kSide, m.rows - r), c, std::min(kSide, panel_end - c)});
      }
    }
  }
}

}  // namespace

void transpose(const Transposition& matrix, std::size_t item_size) {
  switch (item_size) {
    case 1: return transpose_as<std::uint8_t>(matrix);
    case 2: return transpose_as<std::uint16_t>(matrix);
    case 4: return transpose_as<std::uint32_t>(matrix);
    case 8: return transpose_as<std::uint64_t>(matrix);
    default: return transpose_as<CrossedPair>(matrix);
  }
}

}  // namespace cairn
