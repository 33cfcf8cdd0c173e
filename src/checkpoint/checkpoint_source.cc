#include "checkpoint/checkpoint_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "checkpoint/formats.h"
#include "format/pickle_writer.h"
#include "format/storage_keys.h"
#include "format/torch_archive.h"
#include "format/zip.h"
#include "reading/stored_item.h"

namespace cairn {
namespace {

std::uint64_t cache_bytes(const SourceOptions& options) {
  return std::clamp<std::uint64_t>(options.memory_budget / 8, 4U << 20, 32U << 20);
}

MapByName<std::string, Path> paths_in(const Metadata& metadata) {
  MapByName<std::string, Path> paths;
  if (const auto* map = std::get_if<PathMap>(&metadata.planner_data)) {
    for (std::size_t i = 0; i < map->size(); ++i) paths.emplace(map->fqn(i), map->path(i));
  }
  return paths;
}

// Every tensor below `value`, and the storages of opaque objects.
void collect(const Value& value, std::vector<const StoredTensor*>& tensors, std::set<std::string>& keys) {
  const auto all = [&](const List& items) {
    for (const Value& item : items) collect(item, tensors, keys);
  };
  if (const auto* tensor = value.get_if<StoredTensor>()) {
    tensors.push_back(tensor);
  } else if (const auto* opaque = value.get_if<Opaque>()) {
    for (std::string& key : storage_keys(opaque->pickle)) keys.insert(std::move(key));
  } else if (const auto* list = value.get_if<List>()) {
    all(*list);
  } else if (const auto* tuple = value.get_if<Tuple>()) {
    all(tuple->items);
  } else if (const auto* dict = value.get_if<Dict>()) {
    for (const auto& [key, item] : *dict) collect(item, tensors, keys);
  }
}

RawStorage record_of(const ZipReader& zip, const std::string& key) {
  const ZipEntry* entry = zip.find("data/" + key);
  if (entry == nullptr)
    throw Error(ErrorCode::kCorrupt, fmt::format("the archive has no record 'data/{}'", key));
  return {zip.shared_source(), entry->data_offset, entry->size, entry->crc};
}

}  // namespace

CheckpointSource::CheckpointSource(const std::string& url, const SourceOptions& options)
    : checks_(std::make_shared<SourceChecks>(cache_bytes(options), cache_bytes(options) / 4,
                                             options.spill_directory)),
      checkpoint_(open_checkpoint(url, options.limits, checks_)) {
  const TorchParts parts = checkpoint_->torch_parts();
  torch_ = parts.file;
  flat_ = parts.entries;
  if (torch_ == nullptr) return;
  for (const EntryView& entry : *flat_) {
    if (const auto* tensor = entry.value->get_if<StoredTensor>()) {
      stored_.push_back(tensor);
    } else {
      objects_.emplace(entry.name, entry.value);
    }
  }
  for (const TorchFile::Stored& stored : torch_->tensors()) {
    const auto [known, fresh] = storage_types_.emplace(stored.storage_key, stored.tensor.dtype);
    if (!fresh && known->second != stored.tensor.dtype) known->second = std::nullopt;
  }
}

std::vector<SourceEntry> CheckpointSource::entries() const {
  std::vector<SourceEntry> entries;
  std::size_t tensors = 0;
  if (const Metadata* metadata = checkpoint_->metadata()) {
    const MapByName<std::string, Path> paths = paths_in(*metadata);
    for (const auto& [name, stored] : metadata->state_dict_metadata) {
      const auto path = paths.find(name);
      SourceEntry entry{name, path == paths.end() ? Path{name} : path->second, std::nullopt};
      if (std::holds_alternative<TensorStorageMetadata>(stored)) entry.tensor = tensors++;
      entries.push_back(std::move(entry));
    }
  } else if (flat_ != nullptr) {
    for (const EntryView& flat : *flat_) {
      SourceEntry entry{flat.name, flat.path, std::nullopt};
      if (flat.value->is<StoredTensor>()) entry.tensor = tensors++;
      entries.push_back(std::move(entry));
    }
  } else {
    for (const TensorSummary& tensor : checkpoint_->tensors()) {
      entries.push_back({std::string(tensor.name), {std::string(tensor.name)}, tensors++});
    }
  }
  return entries;
}

StoredObject CheckpointSource::object(const std::string& name) const {
  if (const auto item = checkpoint_->object_archive(name)) return object_of_item(name, item);
  const auto found = objects_.find(name);
  if (found == objects_.end()) throw Error(ErrorCode::kNotFound, "no such object").of_tensor(name);
  return object_of_value(*found->second);
}

StoredObject CheckpointSource::object_of_item(const std::string& name,
                                              const std::shared_ptr<const ByteSource>& item) {
  const Limits limits = limits_of_objects({});
  try {
    const ZipReader zip(item, {}, limits);
    const ZipEntry* program = zip.find("data.pkl");
    if (program == nullptr) throw Error(ErrorCode::kCorrupt, "the archive has no record 'data.pkl'");
    StoredObject object{zip.read(*program, limits.torch_pickle_bytes), {}};
    for (std::string& key : storage_keys(object.pickle)) {
      RawStorage storage = record_of(zip, key);
      object.storages.emplace_back(std::move(key), std::move(storage));
    }
    return object;
  } catch (Error& e) {
    e.of_tensor(name).in_file(item->name());
    throw;
  }
}

StoredObject CheckpointSource::object_of_value(const Value& value) const {
  std::vector<const StoredTensor*> tensors;
  std::set<std::string> keys;
  collect(value, tensors, keys);
  for (const StoredTensor* tensor : tensors) keys.insert(torch_->tensors()[tensor->id].storage_key);
  StringSink sink;
  pickle::Writer w(sink, 2);
  w.value(value, [&](pickle::Writer& writer, const Value& v) {
    const TorchFile::Stored& stored = torch_->tensors()[v.get<StoredTensor>().id];
    write_stored_tensor(writer, stored.tensor, stored.first_element,
                        {storage_types_.at(stored.storage_key), stored.storage_bytes, stored.storage_key});
  });
  w.finish();
  StoredObject object{std::move(sink.text), {}};
  for (const std::string& key : keys) object.storages.emplace_back(key, record_of(torch_->zip(), key));
  return object;
}

// As it is stored, every record compared with its checksum.
std::string CheckpointSource::checked_archive(const std::string& name,
                                              const std::shared_ptr<const ByteSource>& item) {
  try {
    const ZipReader zip(item, {});
    for (const ZipEntry& entry : zip.entries()) zip.verify(entry);
    return read_all(*item);
  } catch (Error& e) {
    e.of_tensor(name).in_file(item->name());
    throw;
  }
}

std::string CheckpointSource::object_archive(const std::string& name) const {
  if (const auto item = checkpoint_->object_archive(name)) return checked_archive(name, item);
  const StoredObject object = this->object(name);
  StringSink sink;
  TorchArchive archive(sink, "archive", 64);
  archive.add_head(object.pickle);
  for (const auto& [key, storage] : object.storages) {
    std::string bytes(storage.bytes, '\0');
    storage.source->read_at(storage.offset, std::as_writable_bytes(std::span(bytes)));
    if (storage.crc != 0 && crc32(as_bytes(bytes)) != storage.crc) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("record 'data/{}' does not have the checksum it should", key))
          .in_file(storage.source->name())
          .at(storage.offset);
    }
    archive.add("data/" + key, as_bytes(bytes));
  }
  archive.finish();
  return std::move(sink.text);
}

const StoredTensor* CheckpointSource::stored_tensor(std::size_t tensor) const {
  return torch_ == nullptr ? nullptr : stored_.at(tensor);
}

RawStorage CheckpointSource::storage_of(std::uint64_t id) const {
  const TorchFile::Stored& stored = torch_->tensors().at(id);
  return {torch_->zip().shared_source(), stored.data_offset, stored.storage_bytes, stored.crc};
}

std::optional<DType> CheckpointSource::storage_type(std::uint64_t id) const {
  return storage_types_.at(torch_->tensors().at(id).storage_key);
}

}  // namespace cairn
