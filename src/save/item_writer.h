// Writes the items of a plan into one data file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cairn/limits.h"
#include "cairn/plan.h"
#include "cairn/planner.h"
#include "cairn/transform.h"
#include "device/device_reader.h"
#include "save/file_stream.h"
#include "save/pace.h"

namespace cairn {

struct ItemOptions {
  std::vector<std::string> transforms;  // "zstd"
  ItemTransform* transform = nullptr;   // borrowed: in the place of these
  LazyDriver* devices = nullptr;        // borrowed; null: tensors are in the CPU's memory
  RingOptions ring = {};                // through which tensors of devices pass
  Limits limits = {};                   // of those who will read objects
};

// Used by one thread at a time; the stream, the planner and the pace are borrowed.
class ItemWriter {
 public:
  ItemWriter(FileStream& stream, std::string file, SavePlanner& planner, Pace& pace, ItemOptions options);

  // Errors name the tensor. Error(kInvalidArgument) when the planner gives something else than it planned.
  WriteResult write(const WriteItem& item);

  // The tensor's elements alone, row after row, with nothing around them: as safetensors files have them. For
  // a writer without transforms.
  WriteResult write_bare(const WriteItem& item);
  // The tensor of an item. Error(kUnsupported) when the planner has something else for it.
  Value resolve_tensor(const WriteItem& item);

  // At least as many bytes as write() will add to the file, for a tensor of this many.
  static std::uint64_t most_bytes(std::uint64_t tensor_bytes);

 private:
  std::uint64_t write_tensor(const TensorView& tensor);
  void write_blob(ByteSink& to, const TensorView& tensor);
  void write_memory(ByteSpan bytes);
  void write_elements(const TensorView& tensor);
  std::uint32_t write_from_device(ByteSink& to, const TensorView& tensor);
  // These two return what the metadata is to say.
  std::vector<std::string> write_transformed(const std::function<void(ByteSink&)>& write);
  std::vector<std::string> write_by_caller(const WriteItem& item,
                                           const std::function<void(ByteSink&)>& write);
  bool transforms() const { return options_.transform != nullptr || !options_.transforms.empty(); }
  DeviceReader& reader_of(Device device);
  std::string object_archive(const Value& value) const;
  void check_object(const std::string& archive, bool is_ours) const;

  FileStream& stream_;
  std::string file_;
  SavePlanner& planner_;
  Pace& pace_;
  ItemOptions options_;
  Tensor scratch_;                                        // where scattered elements are gathered
  std::map<int, std::unique_ptr<DeviceReader>> readers_;  // by device
};

// Error(kUnsupported) for a transform that is not known, or not built in.
void check_transforms(const std::vector<std::string>& transforms);

}  // namespace cairn
