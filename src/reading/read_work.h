// What a load reads, worked out before the first byte is: the place of every wanted item, the blocks that are
// read whole, and the pieces of work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/name_table.h"
#include "cairn/checkpoint_storage.h"
#include "format/manifest.h"
#include "reading/planned_source.h"

namespace cairn {

// An item of the plan, found in the checkpoint. Borrows the plan and the metadata.
struct WantedItem {
  const ReadItem* item = nullptr;
  const TensorStorageMetadata* tensor = nullptr;  // null: an object
  const Box* chunk = nullptr;                     // of the tensor
  const std::vector<std::string>* transforms = nullptr;
  bool by_caller = false;    // undone by the caller's own transform
  std::uint32_t file = 0;    // in ReadWork::files
  std::uint64_t offset = 0;  // of the stored item, in the file
  std::uint64_t length = 0;
  std::uint64_t needed = 0;  // bytes of the wanted elements, or of the object
  bool bare = false;         // its elements lie in the file row by row, with no archive around them
  bool in_memory = false;    // all of it is read into memory first; else its elements go where they belong

  bool transformed() const { return by_caller || !transforms->empty(); }
};

struct FileWork {
  std::string name;
  std::uint64_t size = 0;
  PlannedFile plan;
  std::size_t units = 0;
};

// A stretch of small items of one file, or one part of a large one.
struct ReadUnit {
  std::size_t first = 0;
  std::size_t count = 0;
  std::uint32_t part = 0;
  std::uint32_t parts = 0;  // 0: small items
  std::uint32_t large = 0;  // which of the large items, counted from 0
};

struct ReadWork {
  std::vector<WantedItem> items;  // by file and place in it
  std::vector<FileWork> files;
  std::vector<ReadUnit> units;
  std::size_t large_items = 0;
  std::uint64_t needed = 0;
};

// The checkpoint as a reader knows it.
struct CheckpointView {
  const Metadata& metadata;
  const NameTable& names;  // of state_dict_metadata, by position
  const FileSystem& files;
  // The checksums of a data file: null when the checkpoint has none, Error(kCorrupt) when it should have.
  std::function<const ManifestFile*(const std::string& file)> sums;
  Limits limits;
  bool bare = false;  // tensors lie in the files as they are: no archives, no checksums
  const ItemTransform* transform = nullptr;  // of the caller's
};

// Errors name the tensor, and the file where one is to blame: kCorrupt for metadata that contradicts itself
// or its files, kNotFound for a missing file, kInvalidArgument for an item that no checkpoint has.
ReadWork plan_reads(const LoadPlan& plan, const CheckpointView& checkpoint, Verify verify, int threads);

}  // namespace cairn
