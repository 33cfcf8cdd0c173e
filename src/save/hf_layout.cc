#include "save/hf_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cairn/error.h"

namespace cairn {
namespace {

struct Part {
  std::size_t item = 0;
  Box box;
};

// The smallest box around them.
Box hull_of(const std::vector<Part>& parts) {
  Box hull = parts.front().box;
  for (const Part& part : parts) {
    for (std::size_t d = 0; d < hull.rank(); ++d) {
      const std::int64_t end =
          std::max(hull.offsets[d] + hull.sizes[d], part.box.offsets[d] + part.box.sizes[d]);
      hull.offsets[d] = std::min(hull.offsets[d], part.box.offsets[d]);
      hull.sizes[d] = end - hull.offsets[d];
    }
  }
  return hull;
}

bool fills(const Box& hull, const std::vector<Part>& parts) {
  std::vector<Box> boxes;
  for (const Part& part : parts) {
    boxes.push_back(part.box);
    for (std::size_t d = 0; d < hull.rank(); ++d) boxes.back().offsets[d] -= hull.offsets[d];
  }
  return !find_cover_problem(hull.sizes, boxes);
}

// Whether each part is some whole rows of the box.
bool are_rows(const Box& hull, const std::vector<Part>& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    for (std::size_t d = 1; d < hull.rank(); ++d)
      if (part.box.sizes[d] != hull.sizes[d]) return false;
    return true;
  });
}

// Parts of one tensor for one file: one entry if they make up a box, else one for each.
std::vector<HfEntry> join(const std::string& fqn, DType dtype, std::vector<Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::lexicographical_compare(a.box.offsets.begin(), a.box.offsets.end(), b.box.offsets.begin(),
                                        b.box.offsets.end());
  });
  const Box hull = hull_of(parts);
  std::vector<HfEntry> entries;
  if (fills(hull, parts)) {
    entries.push_back({fqn, dtype, hull, {}, are_rows(hull, parts)});
    for (const Part& part : parts) entries.back().items.push_back(part.item);
    return entries;
  }
  for (const Part& part : parts) entries.push_back({fqn, dtype, part.box, {part.item}, true});
  return entries;
}

// Wide elements first, so that all are aligned; then by name.
void sort_entries(std::vector<HfEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const HfEntry& a, const HfEntry& b) {
    const std::size_t wide = item_size(a.dtype), other = item_size(b.dtype);
    return wide != other ? wide > other : a.fqn < b.fqn;
  });
}

int index_of(const std::string& fqn, const std::map<std::string, int>& file_of) {
  if (file_of.empty()) return 1;
  const auto found = file_of.find(fqn);
  if (found == file_of.end())
    throw Error(ErrorCode::kNotFound, "the mapping of tensors to files does not have it").of_tensor(fqn);
  if (found->second < 1)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("files count from 1, not {}", found->second))
        .of_tensor(fqn);
  return found->second;
}

}  // namespace

std::vector<HfFile> lay_out(const WriteItems& items, const std::map<std::string, int>& file_of) {
  std::map<std::string, std::pair<DType, std::vector<Part>>> tensors;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const WriteItem item = items[i];
    auto& [dtype, parts] = tensors[item.index.fqn];
    dtype = item.tensor_data.value().properties.dtype;
    parts.push_back({i, item.tensor_data->chunk});
  }
  std::map<std::pair<int, int>, HfFile> files;
  for (auto& [fqn, tensor] : tensors) {
    const int index = index_of(fqn, file_of);
    int layer = 0;
    for (HfEntry& entry : join(fqn, tensor.first, std::move(tensor.second))) {
      HfFile& file = files[{layer, index}];
      file.index = index;
      file.layer = layer++;
      file.entries.push_back(std::move(entry));
    }
  }
  std::vector<HfFile> result;
  for (auto& [key, file] : files) {
    sort_entries(file.entries);
    result.push_back(std::move(file));
  }
  return result;
}

}  // namespace cairn
