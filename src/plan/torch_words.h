// The sentences in which DCP reports what it cannot load, for those who match on them.
#pragma once

#include <string>
#include <string_view>

#include "cairn/tensor.h"

namespace cairn {

std::string torch_size(const Shape& shape);  // "torch.Size([4, 8])"
std::string missing_key(std::string_view fqn);
std::string size_mismatch(std::string_view fqn, const Shape& saved, const Shape& wanted);
std::string wrong_kind(std::string_view fqn);  // a tensor in the checkpoint, none in the state

}  // namespace cairn
