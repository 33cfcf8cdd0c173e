#include "metadata.h"

#include <string>
#include <utility>

#include "cairn/error.h"
#include "objects.h"

namespace cairn::python {
namespace {

nb::tuple entry_row(const std::string& fqn, const TensorStorageMetadata& tensor) {
  nb::list chunks;
  for (const Box& chunk : tensor.chunks)
    chunks.append(nb::make_tuple(to_tuple(chunk.offsets), to_tuple(chunk.sizes)));
  const TensorProperties& properties = tensor.properties;
  return nb::make_tuple(to_str(fqn), to_str(name_of(properties.dtype)), to_str(name_of(properties.layout)),
                        properties.requires_grad, static_cast<int>(properties.memory_format),
                        properties.pin_memory, to_tuple(tensor.size), chunks);
}

nb::object offset_or_none(const std::optional<Shape>& offset) {
  return offset ? nb::object(to_tuple(*offset)) : nb::none();
}

Layout to_layout(nb::handle name) {
  const std::string text = nb::cast<std::string>(name);
  for (int i = 0; i <= static_cast<int>(Layout::kJagged); ++i)
    if (name_of(static_cast<Layout>(i)) == text) return static_cast<Layout>(i);
  throw Error(ErrorCode::kUnsupported, "the engine has no layout " + text);
}

Path to_path(nb::handle steps) {
  Path path;
  for (nb::handle step : steps) {
    if (PyLong_Check(step.ptr())) {
      path.emplace_back(nb::cast<std::int64_t>(step));
    } else {
      path.emplace_back(to_text(step));
    }
  }
  return path;
}

MetadataIndex to_index(nb::handle fqn, nb::handle offset) {
  MetadataIndex index{to_text(fqn), std::nullopt, std::nullopt};
  if (!offset.is_none()) index.offset = to_shape(offset);
  return index;
}

}  // namespace

SaveId to_save_id(std::string_view hex) {
  std::string digits(hex);
  std::erase(digits, '-');  // torch's have them
  if (digits.size() != 2 * SaveId().size() ||
      digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, "a save id has 32 digits");
  SaveId id;
  for (std::size_t i = 0; i < id.size(); ++i)
    id[i] = static_cast<std::byte>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return id;
}

nb::list entry_rows(const Metadata& metadata) {
  nb::list rows;
  for (const auto& [fqn, stored] : metadata.state_dict_metadata) {
    if (const auto* tensor = std::get_if<TensorStorageMetadata>(&stored)) {
      rows.append(entry_row(fqn, *tensor));
    } else {
      rows.append(nb::make_tuple(to_str(fqn)));
    }
  }
  return rows;
}

nb::tuple to_row(const WriteResult& result) {
  const StorageInfo& info = result.storage_data;
  nb::list transforms;
  for (const std::string& transform : info.transform_descriptors) transforms.append(to_str(transform));
  nb::object hint = result.index.index ? nb::object(nb::int_(*result.index.index)) : nb::none();
  return nb::make_tuple(to_str(result.index.fqn), offset_or_none(result.index.offset), hint,
                        to_str(info.relative_path), info.offset, info.length, transforms);
}

nb::list place_rows(const Metadata& metadata) {
  nb::list rows;
  const StorageData& places = metadata.storage_data;
  for (std::size_t i = 0; i < places.size(); ++i) rows.append(to_row({places.index(i), 0, places.info(i)}));
  return rows;
}

nb::object paths(const Metadata& metadata) {
  if (std::holds_alternative<None>(metadata.planner_data)) return nb::none();
  const auto* map = std::get_if<PathMap>(&metadata.planner_data);
  if (map == nullptr) return nb::bool_(false);
  nb::dict found;
  for (std::size_t i = 0; i < map->size(); ++i) {
    nb::list steps;
    for (const Key& step : map->path(i)) {
      const auto* number = std::get_if<std::int64_t>(&step);
      steps.append(number != nullptr ? nb::object(nb::int_(*number)) : to_str(std::get<std::string>(step)));
    }
    found[to_str(map->fqn(i))] = nb::tuple(steps);
  }
  return found;
}

nb::object foreign_planner_data(const Metadata& metadata, const std::string& file) {
  return object_of_value(std::get<Value>(metadata.planner_data), file);
}

nb::dict extra_objects(const Metadata& metadata, const std::string& file) {
  nb::dict made;
  for (const auto& [name, value] : metadata.extra)
    made[to_str(to_string(name))] = object_of_value(value, file);
  return made;
}

Metadata make_metadata(nb::list entries, nb::object planner_data) {
  Metadata metadata;
  for (nb::handle row : entries) {
    std::string fqn = to_text(row[0]);
    if (PyObject_Size(row.ptr()) == 1) {
      metadata.state_dict_metadata.emplace_back(std::move(fqn), BytesStorageMetadata{});
      continue;
    }
    TensorStorageMetadata tensor;
    tensor.properties.dtype = to_dtype(row[1]);
    tensor.properties.layout = to_layout(row[2]);
    tensor.properties.requires_grad = nb::cast<bool>(row[3]);
    tensor.properties.memory_format = static_cast<MemoryFormat>(nb::cast<int>(row[4]));
    tensor.properties.pin_memory = nb::cast<bool>(row[5]);
    tensor.size = to_shape(row[6]);
    for (nb::handle chunk : row[7]) tensor.chunks.push_back({to_shape(chunk[0]), to_shape(chunk[1])});
    metadata.state_dict_metadata.emplace_back(std::move(fqn), std::move(tensor));
  }
  if (PyBytes_Check(planner_data.ptr())) {
    metadata.planner_data = readable_pickle(bytes_of(planner_data), "the planner's data");
  } else if (!planner_data.is_none()) {
    PathMap map;
    for (const auto& [fqn, path] : nb::cast<nb::dict>(planner_data)) map.add(to_text(fqn), to_path(path));
    metadata.planner_data = std::move(map);
  }
  return metadata;
}

WriteResult to_result(nb::handle place) {
  WriteResult result;
  result.index = to_index(place[0], place[1]);
  nb::object hint = place[2];
  if (!hint.is_none()) result.index.index = nb::cast<std::int64_t>(hint);
  result.storage_data.relative_path = to_text(place[3]);
  result.storage_data.offset = nb::cast<std::int64_t>(place[4]);
  result.storage_data.length = nb::cast<std::int64_t>(place[5]);
  for (nb::handle transform : place[6])
    result.storage_data.transform_descriptors.push_back(to_text(transform));
  result.size_in_bytes = result.storage_data.length;
  return result;
}

}  // namespace cairn::python
