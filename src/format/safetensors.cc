#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/pod_vector.h"
#include "base/utf8.h"
#include "cairn/error.h"
#include "format/json_scanner.h"
#include "format/names.h"

namespace cairn {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMostNameBytes = 64 << 10;

struct Name {
  DType dtype;
  std::string_view text;
};

constexpr std::array kNames = {
    Name{DType::kBool, "BOOL"},
    Name{DType::kUInt8, "U8"},
    Name{DType::kInt8, "I8"},
    Name{DType::kUInt16, "U16"},
    Name{DType::kInt16, "I16"},
    Name{DType::kUInt32, "U32"},
    Name{DType::kInt32, "I32"},
    Name{DType::kUInt64, "U64"},
    Name{DType::kInt64, "I64"},
    Name{DType::kFloat16, "F16"},
    Name{DType::kBFloat16, "BF16"},
    Name{DType::kFloat32, "F32"},
    Name{DType::kFloat64, "F64"},
    Name{DType::kComplex64, "C64"},
    Name{DType::kFloat8E4M3FN, "F8_E4M3"},
    Name{DType::kFloat8E4M3FNUZ, "F8_E4M3FNUZ"},
    Name{DType::kFloat8E5M2, "F8_E5M2"},
    Name{DType::kFloat8E5M2FNUZ, "F8_E5M2FNUZ"},
    Name{DType::kFloat8E8M0FNU, "F8_E8M0"},
    Name{DType::kFloat4E2M1FNx2, "F4"},
};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const Limits& limits)
      : scan_(text, kLengthBytes, "the safetensors header"), limits_(limits) {}

  // Offsets of the tensors count from the start of the data.
  SafetensorsHeader parse();

 private:
  void parse_metadata();
  void parse_tensor();
  DType parse_dtype();
  Shape parse_shape();
  void parse_offsets(SafetensorsEntry& entry);

  JsonScanner scan_;
  const Limits& limits_;
  SafetensorsHeader header_;
  PodVector<std::int64_t> dims_;  // of the tensor being read
};

SafetensorsHeader HeaderParser::parse() {
  bool has_metadata = false;
  scan_.object([&](std::string_view key) {
    if (key == "__metadata__") {
      if (std::exchange(has_metadata, true)) scan_.fail("has '__metadata__' twice");
      parse_metadata();
      return;
    }
    if (key.size() > kMostNameBytes) {
      throw Error(ErrorCode::kLimit, fmt::format("a tensor's name has {} bytes, more than the {} allowed",
                                                 key.size(), kMostNameBytes));
    }
    if (header_.tensors.size() >= limits_.safetensors_tensors) {
      throw Error(ErrorCode::kLimit,
                  fmt::format("there are more than the {} tensors allowed", limits_.safetensors_tensors));
    }
    header_.tensors.emplace_back().name = key;
    parse_tensor();
  });
  scan_.finish();
  const auto& tensors = header_.tensors;
  const auto name_at = [&](std::size_t i) { return std::string_view(tensors[i].name); };
  if (const auto twice = find_duplicate(tensors.size(), name_at)) {
    throw Error(ErrorCode::kCorrupt, "the header has this name twice").of_tensor(tensors[*twice].name);
  }
  return std::move(header_);
}

void HeaderParser::parse_metadata() {
  auto& metadata = header_.metadata;
  if (scan_.take_null()) return;
  scan_.object([&](std::string_view key) {
    metadata.emplace_back().first = key;
    metadata.back().second = scan_.string();
  });
  const auto key_at = [&](std::size_t i) { return std::string_view(metadata[i].first); };
  if (const auto twice = find_duplicate(metadata.size(), key_at)) {
    scan_.fail(fmt::format("has the key '{}' twice in '__metadata__'", metadata[*twice].first));
  }
}

void HeaderParser::parse_tensor() {
  SafetensorsEntry& entry = header_.tensors.back();
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
  try {
    scan_.object([&](std::string_view key) {
      bool* seen = nullptr;
      if (key == "dtype") seen = &has_dtype;
      if (key == "shape") seen = &has_shape;
      if (key == "data_offsets") seen = &has_offsets;
      if (seen == nullptr) scan_.fail(fmt::format("has an unknown key '{}'", key));
      if (std::exchange(*seen, true)) scan_.fail(fmt::format("has the key '{}' twice", key));
      if (seen == &has_dtype) entry.dtype = parse_dtype();
      if (seen == &has_shape) entry.shape = parse_shape();
      if (seen == &has_offsets) parse_offsets(entry);
    });
    if (!has_dtype || !has_shape || !has_offsets) scan_.fail("lacks 'dtype', 'shape' or 'data_offsets'");
  } catch (Error& e) {
    e.of_tensor(entry.name);
    throw;
  }
}

DType HeaderParser::parse_dtype() {
  const std::string_view name = scan_.string();
  if (const auto dtype = dtype_from_safetensors(name)) return *dtype;
  throw Error(ErrorCode::kUnsupported, fmt::format("the element type '{}' is not one we know", name));
}

Shape HeaderParser::parse_shape() {
  dims_.clear();
  scan_.array([&] {
    if (dims_.size() >= limits_.tensor_rank) {
      throw Error(ErrorCode::kLimit,
                  fmt::format("the shape has more than {} dimensions", limits_.tensor_rank));
    }
    dims_.push_back(static_cast<std::int64_t>(scan_.integer()));
  });
  return Shape(dims_.span());
}

void HeaderParser::parse_offsets(SafetensorsEntry& entry) {
  scan_.expect('[');
  entry.offset = scan_.integer();
  scan_.expect(',');
  const std::uint64_t end = scan_.integer();
  scan_.expect(']');
  if (end < entry.offset)
    scan_.fail(fmt::format("has data that ends at {}, before its start at {}", end, entry.offset));
  entry.bytes = end - entry.offset;
}

// Bytes of a tensor with the shape that is in the file. F4 counts half bytes there, torch counts bytes:
// its shape is turned into torch's.
std::uint64_t settle_shape(SafetensorsEntry& entry) {
  // Whatever overflows cannot be what lies in the file.
  const auto times = [](std::uint64_t a, std::uint64_t b) {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product))
      throw Error(ErrorCode::kCorrupt, "shape and type need more than 2^64 bytes");
    return product;
  };
  std::uint64_t count = 1;
  for (const std::int64_t dim : entry.shape) count = times(count, static_cast<std::uint64_t>(dim));
  if (entry.dtype != DType::kFloat4E2M1FNx2) return times(count, item_size(entry.dtype));
  if (count % 2 != 0)
    throw Error(ErrorCode::kCorrupt, "an odd number of F4 elements does not fill its last byte");
  std::int64_t& last = entry.shape[entry.shape.rank() - 1];
  if (last % 2 != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("rows of {} F4 elements do not end on whole bytes", last));
  }
  last /= 2;
  return count / 2;
}

// Tensors must tile the data: sorted by offset, each starts where the one before ends.
void check_layout(SafetensorsHeader& header, std::uint64_t data_bytes) {
  auto& tensors = header.tensors;
  const auto place = [](const SafetensorsEntry& e) { return std::pair(e.offset, e.bytes); };
  PodVector<std::uint32_t> order;
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto before = [&](std::uint32_t a, std::uint32_t b) { return place(tensors[a]) < place(tensors[b]); };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
  std::uint64_t end = 0;
  for (const std::uint32_t i : order) {
    SafetensorsEntry& entry = tensors[i];
    try {
      if (entry.offset != end) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("data starts at byte {} of the data, but the tensor before ends at {}",
                                entry.offset, end));
      }
      end += entry.bytes;
      const std::uint64_t bytes = settle_shape(entry);
      if (bytes != entry.bytes) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("shape and type need {} bytes, but there are {}", bytes, entry.bytes));
      }
    } catch (Error& e) {
      e.of_tensor(entry.name);
      throw;
    }
    entry.offset += header.data_offset;
  }
  if (end != data_bytes) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the tensors take {} bytes, but the file has {} for them", end, data_bytes));
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source, const Limits& limits) {
  const std::uint64_t size = source.size();
  if (size < kLengthBytes) {
    throw Error(ErrorCode::kCorrupt, fmt::format("{} bytes are too few for a safetensors file", size));
  }
  std::array<std::byte, kLengthBytes> length_bytes;
  source.read_at(0, length_bytes);
  const std::uint64_t length = load<std::uint64_t>(length_bytes.data());
  if (length > size - kLengthBytes) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("a header of {} bytes does not fit into a file of {}", length, size))
        .at(0);
  }
  if (length > limits.safetensors_header_bytes) {
    throw Error(ErrorCode::kLimit, fmt::format("the header has {} bytes, more than the {} allowed", length,
                                               limits.safetensors_header_bytes));
  }
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(length);
  source.read_at(kLengthBytes, {bytes.get(), length});
  const std::string_view text = as_text({bytes.get(), length});
  if (!text.starts_with('{'))
    throw Error(ErrorCode::kCorrupt, "the header does not start with '{'").at(kLengthBytes);
  if (!is_utf8(text)) throw Error(ErrorCode::kCorrupt, "the header is not UTF-8").at(kLengthBytes);
  SafetensorsHeader header = HeaderParser(text, limits).parse();
  header.data_offset = kLengthBytes + length;
  check_layout(header, size - header.data_offset);
  return header;
}

std::optional<std::string_view> safetensors_name(DType dtype) {
  for (const Name& name : kNames) {
    if (name.dtype == dtype) return name.text;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const Name& candidate : kNames) {
    if (candidate.text == name) return candidate.dtype;
  }
  return std::nullopt;
}

}  // namespace cairn
