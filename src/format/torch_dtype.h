// How torch.save names element types: by the class of a tensor's storage.
#pragma once

#include <optional>
#include <string_view>

#include "cairn/tensor.h"

namespace cairn {

// "FloatStorage" for float32. nullopt for the newer types, which have no storage class: their tensors lie
// in an UntypedStorage, counted in bytes, and name the type in the pickle (_rebuild_tensor_v3).
std::optional<std::string_view> storage_class(DType dtype);
std::optional<DType> dtype_of_storage_class(std::string_view name);

// Storages without a type, by the names torch has given them.
bool is_untyped_storage_class(std::string_view name);

// The global that stands for the type: "torch" and this. complex32 is what torch calls it too.
std::optional<DType> dtype_of_torch_global(std::string_view module, std::string_view name);

}  // namespace cairn
