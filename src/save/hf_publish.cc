#include "save/hf_publish.h"

#include <set>

#include "base/trial.h"
#include "cairn/error.h"
#include "format/hf_names.h"
#include "format/safetensors.h"
#include "storage/file_names.h"
#include "storage/write_file.h"

namespace cairn {
namespace {

void write_index(FileSystem& files, bool durable, const std::vector<WrittenData>& all) {
  SafetensorsIndex index;
  std::set<std::string_view> seen;
  for (const WrittenData& rank : all) {
    for (const WriteResult& result : rank.results) {
      index.total_size += static_cast<std::uint64_t>(result.size_in_bytes);
      if (seen.insert(result.index.fqn).second)
        index.weight_map.emplace_back(result.index.fqn, result.storage_data.relative_path);
    }
  }
  write_file(files, kIndexFile, write_safetensors_index(index), {.replace = true, .durable = durable});
}

std::set<std::string> old_files(const FileSystem& files, bool sharded, const std::vector<WrittenData>& all) {
  std::set<std::string> old;
  const bool has_index = files.stat(kIndexFile).has_value();
  if (sharded) {
    for (const FileEntry& file : files.list())
      if (is_hf_shard(file.name)) old.insert(file.name);
    if (has_index) old.insert(std::string(kIndexFile));
  } else if (has_index) {
    old = named_by_index(files);
  }
  for (const WrittenData& rank : all)
    for (const WriteResult& result : rank.results) old.erase(result.storage_data.relative_path);
  return old;
}

}  // namespace

std::set<std::string> named_by_index(const FileSystem& files) {
  std::set<std::string> named;
  try {
    for (const auto& [tensor, file] : read_safetensors_index(*files.open(kIndexFile)).weight_map)
      if (file.find('/') == file.npos && file.ends_with(kSafetensorsEnding) && files.stat(file))
        named.insert(file);
  } catch (const Error&) {
    // What it named cannot be known any more; those files stay.
  }
  return named;
}

std::string encode_renames(const HfRenames& renames) {
  std::string text;
  for (const auto& [from, to] : renames) text.append(from).append("\n").append(to).append("\n");
  return text;
}

HfRenames decode_renames(std::string_view text) {
  const auto next = [&] {
    const std::size_t end = text.find('\n');
    if (end == text.npos) throw Error(ErrorCode::kCorrupt, "a rank's list of files ends too early");
    std::string line(text.substr(0, end));
    text.remove_prefix(end + 1);
    return line;
  };
  HfRenames renames;
  while (!text.empty()) {
    std::string from = next(), to = next();
    if (!is_partial(from) || final_name_of(from) != to)
      throw Error(ErrorCode::kCorrupt, "a rank's list of files is not what ranks send");
    renames.emplace_back(std::move(from), std::move(to));
  }
  return renames;
}

void publish_hf(FileSystem& files, bool sharded, bool durable, const std::vector<WrittenData>& all) {
  HfRenames renames;
  for (const WrittenData& rank : all)
    for (auto& rename : decode_renames(rank.attachment)) renames.push_back(std::move(rename));
  const std::set<std::string> old = old_files(files, sharded, all);
  for (const auto& [from, to] : renames) {
    CAIRN_POINT("hf.before_rename");
    files.rename(from, to);
  }
  CAIRN_POINT("hf.renamed");
  if (durable) files.sync_directory();
  CAIRN_POINT("hf.before_index");
  if (!sharded) write_index(files, durable, all);
  // What the old index names stays until the new one cannot be lost any more.
  if (!sharded && durable && !old.empty()) files.sync_directory();
  CAIRN_POINT("hf.before_remove");
  files.remove_all(std::vector(old.begin(), old.end()));
  CAIRN_POINT("hf.after_remove");
  if (durable) files.sync_directory();
}

}  // namespace cairn
