#include "checkpoint/file_list.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/seeded_hash.h"
#include "cairn/error.h"

namespace cairn {
namespace {

std::string folder_in_checkpoint(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == name.npos ? "" : name.substr(0, slash);
}

std::vector<FileEntry> list_folder(const FileSystem& files, const std::string& folder) {
  try {
    return files.entries(folder);
  } catch (const Error& e) {
    // A name that could lead out of the folder is not followed even to look; its file is missing.
    if (e.code() == ErrorCode::kCorrupt) return {};
    throw;
  }
}

// What is no name of a file is not there.
std::optional<FileEntry> stat_of(const FileSystem& folder, const std::string& name) {
  try {
    return folder.stat(name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void add_listing(const FileSystem& folder, std::vector<FileSummary>& files) {
  std::set<std::string> folders{""};
  MapByName<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < files.size(); ++i) {
    folders.insert(folder_in_checkpoint(files[i].name));
    by_name.emplace(files[i].name, i);
  }
  for (const std::string& beneath : folders) {
    for (FileEntry& entry : list_folder(folder, beneath)) {
      if (entry.kind != FileEntry::Kind::kFile) continue;
      std::string name = beneath.empty() ? std::move(entry.name) : beneath + "/" + entry.name;
      const auto known = by_name.find(name);
      if (known == by_name.end()) {
        files.push_back({std::move(name), entry.size, 0, false});
      } else {
        files[known->second].size = entry.size;
      }
    }
  }
  // Not everything can be listed everywhere.
  for (FileSummary& file : files)
    if (!file.size && file.name.find('/') == file.name.npos)
      if (const auto entry = stat_of(folder, file.name)) file.size = entry->size;
}

}  // namespace cairn
