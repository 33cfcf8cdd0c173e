// A description and its manifest, read and compared.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/seeded_hash.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/description.h"
#include "format/dcp_metadata.h"
#include "upkeep/verify_steps.h"

namespace cairn {
namespace {

bool is_listed(const std::vector<FileEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(), [&](const FileEntry& e) { return e.name == name; });
}

std::optional<std::string> named_manifest(const Metadata& metadata) {
  if (!metadata.storage_meta) return std::nullopt;
  const Value* named = metadata.storage_meta->extra.find(std::string(kManifestEntry));
  const std::string* name = named == nullptr ? nullptr : named->get_if<std::string>();
  return name == nullptr ? std::nullopt : std::optional(*name);
}

// A description that was damaged may have lost the name of its manifest; the save ids it knows still lead to
// it. One that cannot be read at all has the only manifest there is.
std::string find_manifest(const DcpPart& part, const std::vector<FileEntry>& entries) {
  std::set<std::string> found;
  if (!part.metadata) {
    for (const FileEntry& entry : entries) {
      const auto name = parse_dcp_name(entry.name);
      if (name && name->kind == DcpName::Kind::kManifest && name->rank == part.rank &&
          !is_partial(entry.name))
        found.insert(entry.name);
    }
    return found.size() == 1 ? *found.begin() : "";
  }
  if (const auto named = named_manifest(*part.metadata)) return *named;
  std::set<SaveId> saves;
  if (part.save_id) saves.insert(*part.save_id);
  for (const std::string& file : part.metadata->storage_data.files())
    if (const auto name = parse_dcp_name(file); name && name->save) saves.insert(*name->save);
  for (const SaveId& save : saves)
    if (std::string name = manifest_name(save, part.rank); is_listed(entries, name)) return name;
  return "";
}

void read_metadata(const FileSystem& files, DcpPart& part, Findings& findings) {
  try {
    const auto source = files.open(part.metadata_file);
    part.metadata_bytes = source->size();
    part.metadata = read_dcp_metadata(*source, findings.options().limits);
  } catch (const Error& e) {
    return findings.add_unreadable(part.metadata_file, e);
  }
  const auto& meta = part.metadata->storage_meta;
  if (meta && meta->save_id) part.save_id = save_id_from(*meta->save_id);
}

// The manifest, unless it is that of another save: its checksums would say nothing.
void read_manifest_of(const FileSystem& files, DcpPart& part, Findings& findings) {
  try {
    Manifest manifest = read_manifest(*files.open(part.manifest_file), findings.options().limits);
    const auto name = parse_dcp_name(part.manifest_file);
    const SaveId expected = part.save_id         ? *part.save_id
                            : name && name->save ? *name->save
                                                 : manifest.save_id;
    if (manifest.save_id == expected) {
      part.manifest = std::move(manifest);
      return;
    }
    findings.add({ProblemKind::kForeign, part.manifest_file, "", std::nullopt,
                  fmt::format("is of the save {}, the description of {}", to_string(manifest.save_id),
                              to_string(expected))});
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound) return findings.add_unreadable(part.manifest_file, e);
    findings.add({ProblemKind::kMissing, part.manifest_file, "", std::nullopt,
                  "missing; it has the checksums of all files"});
  }
}

// Places as the description has them: in order, inside the file, and as the manifest has them.
class FilePlaces {
 public:
  FilePlaces(const StorageData& storage, const std::string& file, const ManifestFile* known,
             Findings& findings)
      : storage_(storage), file_(file), known_(known), findings_(findings) {}

  void check(std::span<const std::uint32_t> rows) {
    std::int64_t end = 0;
    for (const std::uint32_t row : rows) {
      const std::int64_t offset = storage_.offset(row), length = storage_.length(row);
      std::int64_t next = 0;
      if (offset < 0 || length < 0 || __builtin_add_overflow(offset, length, &next)) {
        find(ProblemKind::kMisplaced, row,
             fmt::format("{} bytes from {} on is no place in a file", length, offset));
        continue;
      }
      if (length > 0 && offset < end)
        find(ProblemKind::kOverlapping, row, fmt::format("{} bytes overlap the item before", length));
      end = std::max(end, next);
      if (known_ != nullptr) check_known(row);
    }
  }

 private:
  void check_known(std::uint32_t row) {
    const auto offset = static_cast<std::uint64_t>(storage_.offset(row));
    const auto length = static_cast<std::uint64_t>(storage_.length(row));
    if (offset + length > known_->size) {
      find(ProblemKind::kMisplaced, row,
           fmt::format("{} bytes from here on reach beyond the file's {}", length, known_->size));
    } else if (find_item(*known_, offset, length) == nullptr) {
      find(ProblemKind::kMisplaced, row, fmt::format("the manifest has no item of {} bytes here", length));
    }
  }

  void find(ProblemKind kind, std::uint32_t row, std::string text) {
    std::optional<std::uint64_t> offset;
    if (storage_.offset(row) >= 0) offset = static_cast<std::uint64_t>(storage_.offset(row));
    findings_.add({kind, file_, std::string(storage_.fqn(row)), offset, std::move(text)});
  }

  const StorageData& storage_;
  const std::string& file_;
  const ManifestFile* known_;
  Findings& findings_;
};

void check_files(const DcpPart& part, const ItemsByFile& items, Findings& findings) {
  MapByName<std::string_view, const ManifestFile*> known;
  if (part.manifest)
    for (const ManifestFile& file : part.manifest->files) known.emplace(file.name, &file);
  for (const std::string& file : items.storage().files()) {
    const auto name = parse_dcp_name(file);
    if (part.save_id && name && name->save && name->save != part.save_id) {
      findings.add({ProblemKind::kForeign, file, "", std::nullopt,
                    fmt::format("is of the save {}, the description of {}", to_string(*name->save),
                                to_string(*part.save_id))});
    }
    const auto found = known.find(file);
    if (part.manifest && found == known.end())
      findings.add({ProblemKind::kForeign, file, "", std::nullopt, "the manifest does not know this file"});
    FilePlaces(items.storage(), file, found == known.end() ? nullptr : found->second, findings)
        .check(items.of(file));
  }
}

bool has_place(const StorageData& storage, const std::string& name, const Shape* offset) {
  try {
    return storage.find(name, offset).has_value();
  } catch (const Error&) {
    return false;  // two places are none
  }
}

void check_entry(const Metadata& metadata, const std::string& name, const StorageMetadata& entry,
                 const std::string& file, Findings& findings) {
  const auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
  if (tensor == nullptr) {
    if (!has_place(metadata.storage_data, name, nullptr))
      findings.add(
          {ProblemKind::kUncovered, file, name, std::nullopt, "the object has no place in any file"});
    return;
  }
  for (const Box& chunk : tensor->chunks) {
    if (chunk.empty() || has_place(metadata.storage_data, name, &chunk.offsets)) continue;
    findings.add({ProblemKind::kUncovered, file, name, std::nullopt,
                  fmt::format("chunk {} has no place in any file", to_string(chunk))});
  }
}

ProblemKind kind_of(CoverProblem::Kind kind) {
  switch (kind) {
    case CoverProblem::Kind::kOutOfBounds: return ProblemKind::kMisplaced;
    case CoverProblem::Kind::kOverlap: return ProblemKind::kOverlapping;
    case CoverProblem::Kind::kHole: return ProblemKind::kUncovered;
  }
  return ProblemKind::kUncovered;
}

}  // namespace

DcpPart read_part(const FileSystem& files, const std::vector<FileEntry>& entries, const FileEntry& metadata,
                  Findings& findings) {
  DcpPart part;
  part.metadata_file = metadata.name;
  part.metadata_bytes = metadata.size;
  if (const auto name = parse_dcp_name(metadata.name)) part.rank = name->rank;
  read_metadata(files, part, findings);
  part.manifest_file = find_manifest(part, entries);
  if (!part.manifest_file.empty()) read_manifest_of(files, part, findings);
  return part;
}

void check_places(const DcpPart& part, const ItemsByFile& items, Findings& findings) {
  check_files(part, items, findings);
  if (!part.metadata->foreign_storage_data.is<None>()) {
    return findings.add_unchecked("the description was written by a storage of somebody's own", 0);
  }
  for (const auto& [name, entry] : part.metadata->state_dict_metadata)
    check_entry(*part.metadata, name, entry, part.metadata_file, findings);
}

void check_cover(const Metadata& metadata, Findings& findings) {
  for (const auto& [name, entry] : metadata.state_dict_metadata) {
    const auto* tensor = std::get_if<TensorStorageMetadata>(&entry);
    if (tensor == nullptr) continue;
    try {
      if (auto problem = find_cover_problem(tensor->size, tensor->chunks))
        findings.add({kind_of(problem->kind), "", name, std::nullopt, std::move(problem->text)});
    } catch (const Error& e) {
      findings.add_unreadable("", e, name);
    }
  }
}

}  // namespace cairn
