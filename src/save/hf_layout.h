// Which items of a plan go into which safetensors file, and how.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cairn/plan.h"

namespace cairn {

// One entry of a file's header: a tensor, or a box of it that one or several items make up.
struct HfEntry {
  std::string fqn;
  DType dtype = DType::kFloat32;
  Box box;                         // of the whole tensor
  std::vector<std::size_t> items;  // positions in the plan, by their offsets
  bool in_rows = true;  // the items' elements follow each other; else they have to be woven together
};

struct HfFile {
  int index = 1;  // which of the model's files, from 1
  int layer =
      0;  // 0, or 1 and more for parts of a tensor that cannot be one entry with those of lower layers
  std::vector<HfEntry> entries;  // in the order they are written
};

// Error(kNotFound) for a tensor that `file_of` lacks, when it has any. All items are tensors.
std::vector<HfFile> lay_out(const WriteItems& items, const std::map<std::string, int>& file_of);

}  // namespace cairn
