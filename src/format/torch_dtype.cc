#include "format/torch_dtype.h"

#include <utility>

namespace cairn {
namespace {

constexpr std::pair<std::string_view, DType> kStorageClasses[] = {
    {"FloatStorage", DType::kFloat32},
    {"DoubleStorage", DType::kFloat64},
    {"HalfStorage", DType::kFloat16},
    {"BFloat16Storage", DType::kBFloat16},
    {"LongStorage", DType::kInt64},
    {"IntStorage", DType::kInt32},
    {"ShortStorage", DType::kInt16},
    {"CharStorage", DType::kInt8},
    {"ByteStorage", DType::kUInt8},
    {"BoolStorage", DType::kBool},
    {"ComplexFloatStorage", DType::kComplex64},
    {"ComplexDoubleStorage", DType::kComplex128},
};

// Other names torch has for a type; name_of() gives the first.
constexpr std::pair<std::string_view, DType> kAliases[] = {
    {"float", DType::kFloat32},   {"double", DType::kFloat64},   {"half", DType::kFloat16},
    {"long", DType::kInt64},      {"int", DType::kInt32},        {"short", DType::kInt16},
    {"chalf", DType::kComplex32}, {"cfloat", DType::kComplex64}, {"cdouble", DType::kComplex128},
};

}  // namespace

std::optional<std::string_view> storage_class(DType dtype) {
  for (const auto& [name, held] : kStorageClasses) {
    if (held == dtype) return name;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of_storage_class(std::string_view name) {
  for (const auto& [known, held] : kStorageClasses) {
    if (known == name) return held;
  }
  return std::nullopt;
}

bool is_untyped_storage_class(std::string_view name) {
  return name == "UntypedStorage" || name == "_UntypedStorage";
}

std::optional<DType> dtype_of_torch_global(std::string_view module, std::string_view name) {
  if (module != "torch") return std::nullopt;
  for (const auto& [alias, dtype] : kAliases) {
    if (alias == name) return dtype;
  }
  return dtype_from_name(name);
}

}  // namespace cairn
