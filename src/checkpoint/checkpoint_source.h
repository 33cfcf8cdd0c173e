// What those who read a whole checkpoint ask of it beyond what Checkpoint tells: paths, and the stored form
// of things.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"
#include "base/source.h"
#include "cairn/checkpoint.h"
#include "checkpoint/formats.h"
#include "reading/source_checks.h"

namespace cairn {

struct SourceEntry {
  std::string name;
  Path path;
  std::optional<std::size_t> tensor;  // position in tensors(); nullopt: an object
};

// A storage of an archive of torch.save, as it lies in a file.
struct RawStorage {
  std::shared_ptr<const ByteSource> source;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;  // 0: unknown
};

// An object as torch.save has it: a program, and the storages it refers to, by key.
struct StoredObject {
  std::string pickle;
  std::vector<std::pair<std::string, RawStorage>> storages;
};

struct SourceOptions {
  std::uint64_t memory_budget = std::uint64_t{256} << 20;
  std::string spill_directory;  // where compressed items are unpacked that are too large for the budget
  Limits limits = {};
};

// May be read by many threads at once.
class CheckpointSource {
 public:
  CheckpointSource(const std::string& url, const SourceOptions& options);

  const StoredCheckpoint& checkpoint() const { return *checkpoint_; }
  const SourceChecks& checks() const { return *checks_; }
  std::vector<SourceEntry> entries() const;  // tensors and objects in stored order

  StoredObject object(const std::string& name) const;
  // The object as an item of a DCP checkpoint.
  std::string object_archive(const std::string& name) const;

  // Of torch.save files only, else null and nothing: how the file as a whole looks, and where a tensor lies.
  const TorchFile* torch_file() const { return torch_; }
  const StoredTensor* stored_tensor(std::size_t tensor) const;
  RawStorage storage_of(std::uint64_t id) const;              // by StoredTensor::id
  std::optional<DType> storage_type(std::uint64_t id) const;  // nullopt: tensors of several types lie in it

 private:
  static StoredObject object_of_item(const std::string& name, const std::shared_ptr<const ByteSource>& item);
  StoredObject object_of_value(const Value& value) const;
  static std::string checked_archive(const std::string& name, const std::shared_ptr<const ByteSource>& item);

  std::shared_ptr<SourceChecks> checks_;
  std::unique_ptr<StoredCheckpoint> checkpoint_;
  const TorchFile* torch_ = nullptr;
  const std::vector<EntryView>* flat_ = nullptr;       // the torch.save file's
  MapByName<std::string_view, const Value*> objects_;  // of the torch.save file, by name
  std::vector<const StoredTensor*> stored_;            // of the torch.save file, by position in tensors()
  MapByName<std::string, std::optional<DType>> storage_types_;  // by key
};

}  // namespace cairn
