#include <array>

#include "cairn/tensor.h"

namespace cairn {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t size;
};

// One row per DType, in the order of the enum.
constexpr std::array<TypeFacts, kDTypeCount> kTypeFacts = {{
    {"bool", 1},           {"uint8", 1},
    {"int8", 1},           {"uint16", 2},
    {"int16", 2},          {"uint32", 4},
    {"int32", 4},          {"uint64", 8},
    {"int64", 8},          {"float16", 2},
    {"bfloat16", 2},       {"float32", 4},
    {"float64", 8},        {"complex32", 4},
    {"complex64", 8},      {"complex128", 16},
    {"float8_e4m3fn", 1},  {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1},    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1}, {"float4_e2m1fn_x2", 1},
}};

}  // namespace

std::string_view name_of(DType dtype) { return kTypeFacts[static_cast<std::size_t>(dtype)].name; }

std::size_t item_size(DType dtype) { return kTypeFacts[static_cast<std::size_t>(dtype)].size; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kTypeFacts.size(); ++i) {
    if (kTypeFacts[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace cairn
