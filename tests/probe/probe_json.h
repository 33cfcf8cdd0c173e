// What several commands read and write as JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "cairn/layout.h"
#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

Shape shape_from(const nlohmann::ordered_json& j);
DType dtype_from(const nlohmann::ordered_json& j);
std::vector<Box> boxes_from(const nlohmann::ordered_json& j);  // [[offsets, sizes]...]
Path path_from(const nlohmann::ordered_json& j);

// A nested state: {"dict": [[key, value]...]}, {"list": [...]}, {"tuple": [...]}, {"tensor": [dtype, shape]},
// {"sharded": [dtype, global shape, [[offsets, sizes]...]]}, or a scalar.
Value value_from(const nlohmann::ordered_json& j);

nlohmann::ordered_json json_of(const Shape& shape);
nlohmann::ordered_json json_of(const Path& path);

// Answers one request per line of stdin with one line on stdout, as long as there are lines. An Error is
// answered as
// {"error": message, "code": name, "tensor": name, "rank": number}, the last two where it has them; a request
// that makes no sense with the code "request".
int answer_lines(const std::function<nlohmann::ordered_json(const nlohmann::ordered_json& request)>& answer);

}  // namespace cairn
