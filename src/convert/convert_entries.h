// Which entries of a source are converted, and what they are called and made of in the destination.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cairn/convert.h"
#include "checkpoint/checkpoint_source.h"

namespace cairn {

struct ConvertEntry {
  std::string from;
  std::string name;
  Path path;
  std::optional<std::size_t> tensor;  // in the source; nullopt: an object
  DType dtype = DType::kFloat32;      // in the destination
  Shape shape;
  std::uint64_t bytes = 0;  // in the destination
};

// In stored order. Error kInvalidArgument for an option that cannot be understood, for two entries that get
// one name (both are named), and for patterns that match nothing at all.
std::vector<ConvertEntry> choose_entries(const CheckpointSource& source, const ConvertOptions& options);

// The path of an entry that was renamed: the steps from the left and from the right that are still there, and
// between them one step for what is new.
Path renamed_path(const Path& path, const std::string& name);

}  // namespace cairn
