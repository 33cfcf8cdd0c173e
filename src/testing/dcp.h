// Whole DCP checkpoints in memory for tests, with or without a manifest.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/checkpoint_storage.h"
#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "format/manifest.h"
#include "testing/checkpoints.h"

namespace cairn {

inline void put_file(FileSystem& files, const std::string& name, std::string_view bytes) {
  const auto writer = files.create(name, {.replace = true});
  writer->write_at(0, as_bytes(bytes));
  writer->commit();
}

inline std::string get_file(const FileSystem& files, const std::string& name) {
  return read_all(*files.open(name));
}

inline void flip_bit(FileSystem& files, const std::string& name, std::size_t bit) {
  std::string bytes = get_file(files, name);
  bytes.at(bit / 8) = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  put_file(files, name, bytes);
}

// Collects items and writes them as a save would.
class DcpFiles {
 public:
  SaveId save_id{std::byte{1}, std::byte{2}};
  bool with_manifest = true;
  std::uint64_t alignment = 4096;  // where large items' archives begin in their file
  std::optional<int> rank;         // of a rank-local save
  Metadata metadata;

  void tensor(const std::string& name, Shape size, DType dtype = DType::kFloat32) {
    TensorStorageMetadata entry;
    entry.properties.dtype = dtype;
    entry.size = std::move(size);
    metadata.state_dict_metadata.emplace_back(name, std::move(entry));
  }
  void chunk(const std::string& name, const Box& box, const std::string& file, const Value& value) {
    for (auto& [known, entry] : metadata.state_dict_metadata) {
      if (known == name) std::get<TensorStorageMetadata>(entry).chunks.push_back(box);
    }
    item({name, box.offsets, std::nullopt}, file, torch_bytes(value));
  }
  void whole(const std::string& name, const std::string& file, const Tensor& value) {
    tensor(name, value.view().shape, value.view().dtype);
    chunk(name, Box::whole(value.view().shape), file, value);
  }
  void object(const std::string& name, const std::string& file, const Value& value) {
    metadata.state_dict_metadata.emplace_back(name, BytesStorageMetadata{});
    item({name, std::nullopt, std::nullopt}, file, torch_bytes(value));
  }
  void item(const MetadataIndex& index, const std::string& file, const std::string& bytes,
            std::vector<std::string> transforms = {}) {
    std::string& contents = files_[file];
    if (bytes.size() > (64 << 10)) contents.resize((contents.size() + alignment - 1) / alignment * alignment);
    StorageInfo place;
    place.relative_path = file;
    place.offset = static_cast<std::int64_t>(contents.size());
    place.length = static_cast<std::int64_t>(bytes.size());
    place.transform_descriptors = std::move(transforms);
    metadata.storage_data.add(index, place);
    contents += bytes;
  }

  void write(FileSystem& files) {
    StringSink manifest;
    ManifestWriter sums(manifest, save_id);
    for (const auto& [name, contents] : files_) {
      put_file(files, name, contents);
      sums.add(sums_of(name, contents));
    }
    StorageMeta meta;
    meta.save_id = with_manifest ? to_string(save_id) : "0c7fa3a2-94a1-4bd7-8d2f-3f5f4b6d9a10";
    if (with_manifest) meta.extra.set("cairn_manifest", manifest_name(save_id, rank));
    metadata.storage_meta = meta;
    StringSink description;
    write_dcp_metadata(description, metadata);
    put_file(files, metadata_name(rank), description.text);
    sums.add(sums_of(metadata_name(rank), description.text));
    sums.finish();
    if (with_manifest) put_file(files, manifest_name(save_id, rank), manifest.text);
  }
  std::shared_ptr<FileSystem> in_memory() {
    std::shared_ptr<FileSystem> files = memory_file_system();
    write(*files);
    return files;
  }

 private:
  static ManifestFile sums_of(const std::string& name, std::string_view contents) {
    ChecksumStream stream;
    stream.append(as_bytes(contents));
    return stream.finish(name);
  }

  std::map<std::string, std::string> files_;
};

}  // namespace cairn
