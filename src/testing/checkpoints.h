// Small checkpoints for tests, made in a folder.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/sink.h"
#include "cairn/metadata.h"
#include "format/torch_file.h"
#include "testing/folder.h"

namespace cairn {

// 0, 1, 2, ... from `first` on.
inline Tensor arange(Shape shape, float first = 0) {
  Tensor tensor = Tensor::empty(DType::kFloat32, std::move(shape));
  for (std::size_t i = 0; i < tensor.bytes().size() / 4; ++i) {
    store(tensor.bytes().data() + 4 * i, first + static_cast<float>(i));
  }
  return tensor;
}

inline std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> all(tensor.bytes().size() / 4);
  if (!all.empty()) std::memcpy(all.data(), tensor.bytes().data(), tensor.bytes().size());
  return all;
}

inline std::string torch_bytes(const Value& value) {
  StringSink sink;
  write_torch_file(sink, value);
  return std::move(sink.text);
}

// Puts items into data files and notes them in a Metadata, as a save would.
class DcpMaker {
 public:
  explicit DcpMaker(const TestFolder& folder) : folder_(folder) {}

  // The tensor "as a whole"; its chunks follow.
  TensorStorageMetadata& tensor(const std::string& name, Shape size, DType dtype = DType::kFloat32) {
    TensorStorageMetadata entry;
    entry.properties.dtype = dtype;
    entry.size = std::move(size);
    metadata.state_dict_metadata.emplace_back(name, std::move(entry));
    return std::get<TensorStorageMetadata>(metadata.state_dict_metadata.back().second);
  }
  void chunk(const std::string& name, const Box& box, const std::string& file, const Value& value) {
    for (auto& [known, entry] : metadata.state_dict_metadata) {
      if (known == name) std::get<TensorStorageMetadata>(entry).chunks.push_back(box);
    }
    store_item({name, box.offsets, std::nullopt}, file, torch_bytes(value));
  }
  void object(const std::string& name, const std::string& file, const Value& value) {
    metadata.state_dict_metadata.emplace_back(name, BytesStorageMetadata{});
    store_item({name, std::nullopt, std::nullopt}, file, torch_bytes(value));
  }
  void store_item(const MetadataIndex& index, const std::string& file, const std::string& bytes,
                  std::vector<std::string> transforms = {}) {
    std::string& contents = files_[file];
    StorageInfo place;
    place.relative_path = file;
    place.offset = static_cast<std::int64_t>(contents.size());
    place.length = static_cast<std::int64_t>(bytes.size());
    place.transform_descriptors = std::move(transforms);
    metadata.storage_data.add(index, place);
    contents += bytes;
    folder_.write(file, contents);
  }

  Metadata metadata;

 private:
  const TestFolder& folder_;
  std::map<std::string, std::string> files_;
};

}  // namespace cairn
