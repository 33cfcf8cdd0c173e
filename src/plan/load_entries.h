// From one entry of a state to the items that fill it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cairn/plan.h"
#include "plan/checkpoint_index.h"

namespace cairn {

// The tensor memory of an entry: its boxes lie in `shape`.
struct Destination {
  DType dtype;
  Shape shape;
  std::vector<Box> boxes;
};

// nullopt when the entry is an object. Error(kInvalidArgument) for shards that do not fit their tensor.
std::optional<Destination> destination_of(const FlatEntry& entry);

ReadItem read_object(const std::string& fqn);

// Appends the items that fill `entry` from the checkpoint's entry at `position`.
void add_entry(CheckpointIndex& index, std::size_t position, const FlatEntry& entry,
               std::vector<ReadItem>& items);

}  // namespace cairn
