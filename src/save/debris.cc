#include "save/debris.h"

#include "checkpoint/dcp_names.h"

namespace cairn {
namespace {

bool is_debris(const std::string& name, const LiveFiles& live, std::optional<int> rank) {
  const std::optional<DcpName> parsed = parse_dcp_name(name);
  if (rank && (!parsed || parsed->rank != rank)) return false;
  if (live.has_file(name)) return false;
  if (is_partial(name)) return true;
  if (parsed && (parsed->kind == DcpName::Kind::kClaim || parsed->kind == DcpName::Kind::kNextMetadata))
    return true;
  return parsed && parsed->save && !live.has_save(*parsed->save);
}

}  // namespace

void LiveFiles::add(const Metadata& metadata) {
  for (const std::string& name : metadata.storage_data.files()) names_.insert(name);
  if (!metadata.storage_meta || !metadata.storage_meta->save_id) return;
  if (const auto save = save_id_from(*metadata.storage_meta->save_id)) saves_.insert(*save);
}

std::vector<FileEntry> find_debris(std::span<const FileEntry> files, const LiveFiles& live,
                                   std::optional<int> rank) {
  std::vector<FileEntry> debris;
  for (const FileEntry& file : files)
    if (is_debris(file.name, live, rank)) debris.push_back(file);
  return debris;
}

}  // namespace cairn
