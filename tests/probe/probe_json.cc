#include "probe_json.h"

#include <iostream>
#include <string>
#include <utility>

#include "cairn/error.h"

namespace cairn {
namespace {

using nlohmann::ordered_json;

Key key_from(const ordered_json& j) {
  return j.is_string() ? Key(j.get<std::string>()) : Key(j.get<std::int64_t>());
}

ShardedTensor sharded_from(const ordered_json& j) {
  ShardedTensor sharded{dtype_from(j[0]), shape_from(j[1]), {}};
  for (const Box& box : boxes_from(j[2]))
    sharded.shards.push_back({box, Tensor::zeros(sharded.dtype, box.sizes)});
  return sharded;
}

Dict dict_from(const ordered_json& j) {
  Dict dict;
  for (const ordered_json& entry : j) dict.set(key_from(entry[0]), value_from(entry[1]));
  return dict;
}

ordered_json said_of(const Error& e) {
  ordered_json said = {{"error", e.message()}, {"code", std::string(name_of(e.code()))}};
  if (!e.tensor().empty()) said["tensor"] = e.tensor();
  if (e.rank()) said["rank"] = *e.rank();
  return said;
}

}  // namespace

Shape shape_from(const ordered_json& j) { return Shape(j.get<std::vector<std::int64_t>>()); }

DType dtype_from(const ordered_json& j) {
  const auto dtype = dtype_from_name(j.get<std::string>());
  if (!dtype) throw Error(ErrorCode::kInvalidArgument, "no such dtype: " + j.get<std::string>());
  return *dtype;
}

std::vector<Box> boxes_from(const ordered_json& j) {
  std::vector<Box> boxes;
  for (const ordered_json& box : j) boxes.push_back({shape_from(box[0]), shape_from(box[1])});
  return boxes;
}

Path path_from(const ordered_json& j) {
  Path path;
  for (const ordered_json& step : j) path.push_back(key_from(step));
  return path;
}

Value value_from(const ordered_json& j) {
  if (j.is_null()) return None{};
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<std::int64_t>();
  if (j.is_number()) return j.get<double>();
  if (j.is_string()) return j.get<std::string>();
  const auto [kind, inside] = *j.items().begin();
  if (kind == "tensor") return Tensor::zeros(dtype_from(inside[0]), shape_from(inside[1]));
  if (kind == "sharded") return sharded_from(inside);
  if (kind == "dict") return dict_from(inside);
  List items;
  for (const ordered_json& item : inside) items.push_back(value_from(item));
  if (kind == "tuple") return Tuple{std::move(items)};
  return items;
}

ordered_json json_of(const Shape& shape) {
  return ordered_json(std::vector<std::int64_t>(shape.begin(), shape.end()));
}

ordered_json json_of(const Path& path) {
  ordered_json steps = ordered_json::array();
  for (const Key& step : path) std::visit([&](const auto& s) { steps.push_back(s); }, step);
  return steps;
}

int answer_lines(const std::function<ordered_json(const ordered_json& request)>& answer) {
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    ordered_json reply;
    try {
      reply = answer(ordered_json::parse(line));
    } catch (const Error& e) {
      reply = said_of(e);
    } catch (const std::exception& e) {
      reply = {{"error", e.what()}, {"code", "request"}};
    }
    std::cout << reply.dump() << "\n" << std::flush;
  }
  return 0;
}

}  // namespace cairn
