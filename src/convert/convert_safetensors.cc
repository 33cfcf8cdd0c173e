// Where the tensors of safetensors files lie: one file, or a directory of them with an index.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "cairn/error.h"
#include "checkpoint/formats.h"
#include "convert/convert_layout.h"
#include "format/safetensors.h"

namespace cairn {
namespace {

constexpr std::uint64_t kUsualShard = 5'000'000'000;

// Large elements first, then by name, as the reference implementation has it: so every tensor is aligned.
void sort_for_file(std::vector<std::size_t>& tensors, const std::vector<ConvertEntry>& entries) {
  std::sort(tensors.begin(), tensors.end(), [&](std::size_t a, std::size_t b) {
    const std::size_t x = item_size(entries[a].dtype), y = item_size(entries[b].dtype);
    return x != y ? x > y : entries[a].name < entries[b].name;
  });
}

FileLayout lay_out_file(std::string name, std::vector<std::size_t> tensors,
                        const std::vector<ConvertEntry>& entries, const ConvertOptions& options) {
  FileLayout file;
  file.name = std::move(name);
  sort_for_file(tensors, entries);
  std::vector<SafetensorsEntry> stored;
  for (const std::size_t i : tensors)
    stored.push_back({entries[i].name, entries[i].dtype, entries[i].shape, 0, 0});
  try {
    file.add_fixed(make_safetensors_header(stored, options.metadata));
  } catch (Error& e) {
    e.in_file(file.name);
    throw;
  }
  for (const std::size_t i : tensors) file.add(Segment::Kind::kTensor, entries[i].bytes, i, i);
  return file;
}

std::vector<std::size_t> tensors_in(const std::vector<ConvertEntry>& entries) {
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].tensor) tensors.push_back(i);
  return tensors;
}

// File after file is filled up to the size, in stored order.
std::vector<int> fill_files(const std::vector<std::size_t>& tensors, const std::vector<ConvertEntry>& entries,
                            std::uint64_t most) {
  std::vector<int> file_of;
  int file = 1;
  std::uint64_t used = 0;
  for (const std::size_t i : tensors) {
    if (used > 0 && entries[i].bytes > most - std::min(used, most)) {
      ++file;
      used = 0;
    }
    used += entries[i].bytes;
    file_of.push_back(file);
  }
  return file_of;
}

// The least size that gives no more files than asked for.
std::uint64_t size_for(int shards, const std::vector<std::size_t>& tensors,
                       const std::vector<ConvertEntry>& entries) {
  std::uint64_t total = 0;
  for (const std::size_t i : tensors) total += entries[i].bytes;
  std::uint64_t low = 1, high = std::max<std::uint64_t>(total, 1);
  while (low < high) {
    const std::uint64_t size = low + (high - low) / 2;
    const std::vector<int> files = fill_files(tensors, entries, size);
    (files.empty() || files.back() <= shards ? high : low) =
        files.empty() || files.back() <= shards ? size : size + 1;
  }
  return low;
}

std::vector<int> files_by_mapping(const std::vector<std::size_t>& tensors,
                                  const std::vector<ConvertEntry>& entries,
                                  const std::map<std::string, int>& mapping) {
  std::vector<int> file_of;
  for (const std::size_t i : tensors) {
    const auto file = mapping.find(entries[i].name);
    if (file == mapping.end() || file->second < 1) {
      throw Error(ErrorCode::kInvalidArgument, "the mapping to files does not say where this tensor goes")
          .of_tensor(entries[i].name);
    }
    file_of.push_back(file->second);
  }
  return file_of;
}

std::vector<int> choose_files(const std::vector<std::size_t>& tensors,
                              const std::vector<ConvertEntry>& entries, const ConvertOptions& options) {
  if (!options.file_of.empty()) return files_by_mapping(tensors, entries, options.file_of);
  if (options.shards > 0) return fill_files(tensors, entries, size_for(options.shards, tensors, entries));
  return fill_files(tensors, entries, options.max_shard_size > 0 ? options.max_shard_size : kUsualShard);
}

bool is_wanted(int file, const ConvertOptions& options) {
  const auto& only = options.only_files;
  return !only || std::find(only->begin(), only->end(), file) != only->end();
}

}  // namespace

OutputLayout lay_out_safetensors(const std::vector<ConvertEntry>& entries, const std::string& file_name,
                                 const ConvertOptions& options) {
  OutputLayout layout;
  layout.files.push_back(lay_out_file(file_name, tensors_in(entries), entries, options));
  layout.file_of.assign(entries.size(), file_name);
  return layout;
}

OutputLayout lay_out_hugging_face(const std::vector<ConvertEntry>& entries, const ConvertOptions& options) {
  const std::vector<std::size_t> tensors = tensors_in(entries);
  const std::vector<int> file_of = choose_files(tensors, entries, options);
  int last = file_of.empty() ? 1 : *std::max_element(file_of.begin(), file_of.end());
  for (const auto& [name, file] : options.file_of) last = std::max(last, file);
  const auto file_name = [&](int file) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", file, last);
  };

  OutputLayout layout;
  layout.file_of.resize(entries.size());
  std::map<int, std::vector<std::size_t>> by_file;
  SafetensorsIndex index;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    by_file[file_of[i]].push_back(tensors[i]);
    layout.file_of[tensors[i]] = file_name(file_of[i]);
    index.weight_map.emplace_back(entries[tensors[i]].name, file_name(file_of[i]));
    index.total_size += entries[tensors[i]].bytes;
  }
  for (auto& [file, held] : by_file)
    if (is_wanted(file, options))
      layout.files.push_back(lay_out_file(file_name(file), std::move(held), entries, options));
  if (options.index) {
    layout.files.emplace_back().name = kIndexFile;
    layout.files.back().add_fixed(write_safetensors_index(index));
  }
  return layout;
}

}  // namespace cairn
