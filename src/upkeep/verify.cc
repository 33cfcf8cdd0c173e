// verify: finds out what a path is, and which checks there are for it.
#include "cairn/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/current_error.h"
#include "checkpoint/dcp_checkpoint.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/formats.h"
#include "format/torch_file.h"
#include "save/debris.h"
#include "upkeep/verify_steps.h"

namespace cairn {
namespace {

// ".metadata", or else every rank's own.
std::vector<FileEntry> find_metadata(const std::vector<FileEntry>& entries) {
  std::vector<std::pair<int, FileEntry>> ranks;
  for (const FileEntry& entry : entries) {
    if (entry.name == kMetadataName) return {entry};
    const auto name = parse_dcp_name(entry.name);
    if (name && name->kind == DcpName::Kind::kMetadata && !is_partial(entry.name))
      ranks.emplace_back(name->rank.value_or(0), entry);
  }
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<FileEntry> found;
  for (auto& [rank, entry] : ranks) found.push_back(std::move(entry));
  return found;
}

void check_part(const FileSystem& files, const DcpPart& part, Findings& findings) {
  static const StorageData kNothing;
  const ItemsByFile items(part.metadata ? part.metadata->storage_data : kNothing);
  if (part.metadata) check_places(part, items, findings);
  if (part.manifest) {
    check_blocks(files, part, items, findings);
  } else if (part.metadata) {
    check_archives(files, part, findings);
  }
}

// The files that make up the checkpoint.
std::uint64_t count_files(const std::vector<DcpPart>& parts) {
  std::set<std::string_view> names;
  for (const DcpPart& part : parts) {
    names.insert(part.metadata_file);
    if (!part.manifest_file.empty()) names.insert(part.manifest_file);
    if (part.manifest)
      for (const ManifestFile& file : part.manifest->files) names.insert(file.name);
    if (part.metadata)
      names.insert(part.metadata->storage_data.files().begin(), part.metadata->storage_data.files().end());
  }
  return names.size();
}

// Without every description, those of single ranks beside a whole one too, nobody knows what is debris.
std::vector<FileEntry> debris_beside(const std::vector<DcpPart>& parts,
                                     const std::vector<FileEntry>& entries) {
  const auto described = std::count_if(entries.begin(), entries.end(), [](const FileEntry& entry) {
    const auto name = parse_dcp_name(entry.name);
    const bool is_metadata =
        name && (name->kind == DcpName::Kind::kMetadata || name->kind == DcpName::Kind::kNextMetadata);
    return is_metadata && !is_partial(entry.name);
  });
  if (static_cast<std::size_t>(described) != parts.size()) return {};
  LiveFiles live;
  for (const DcpPart& part : parts) {
    if (!part.metadata) return {};
    live.add(*part.metadata);
  }
  return find_debris(entries, live);
}

void check_whole(std::vector<DcpPart> parts, VerifyReport& counts, Findings& findings) {
  std::vector<Metadata> descriptions;
  for (DcpPart& part : parts)
    if (part.metadata) descriptions.push_back(std::move(*part.metadata));
  if (descriptions.size() < parts.size()) return;  // what the others hold is not known
  try {
    const Metadata all = descriptions.size() == 1 ? std::move(descriptions.front())
                                                  : merge_rank_local(std::move(descriptions));
    for (const auto& [name, entry] : all.state_dict_metadata)
      ++(std::holds_alternative<TensorStorageMetadata>(entry) ? counts.tensors : counts.objects);
    check_cover(all, findings);
  } catch (const Error& e) {
    findings.add_unreadable("", e, e.tensor());
  }
}

VerifyReport verify_dcp(const FileSystem& files, const std::vector<FileEntry>& entries,
                        const std::vector<FileEntry>& metadata, const VerifyOptions& options) {
  Findings findings(options);
  VerifyReport counts;
  std::vector<DcpPart> parts;
  for (const FileEntry& entry : metadata) parts.push_back(read_part(files, entries, entry, findings));
  for (const DcpPart& part : parts) {
    check_part(files, part, findings);
    if (part.metadata) counts.items += part.metadata->storage_data.size();
  }
  counts.files = count_files(parts);
  counts.debris = debris_beside(parts, entries);
  check_whole(std::move(parts), counts, findings);
  return findings.finish(std::move(counts));
}

VerifyReport verify_torch_file(const Place& place, const Checkpoint& checkpoint,
                               const VerifyOptions& options) {
  Findings findings(options);
  const Limits& limits = options.limits;
  const ZipReader zip(place.files->open(place.name), {limits.zip_entries}, limits);
  for (const ZipEntry& entry : zip.entries()) findings.expect(entry.size);
  for_each_in_parallel(zip.entries().size(), findings.threads(), [&](std::size_t i, int) {
    const ZipEntry& entry = zip.entries()[i];
    try {
      zip.verify(entry) ? findings.add_checked(entry.size)
                        : findings.add_unchecked("written without checksums", entry.size);
    } catch (const Error& e) {
      findings.add({ProblemKind::kFlipped, place.name, "", entry.data_offset, e.message()});
    }
    findings.pass(entry.size);
  });
  VerifyReport counts;
  counts.format = Format::kTorchFile;
  counts.files = 1;
  counts.tensors = counts.items = checkpoint.tensors().size();
  counts.objects = checkpoint.objects().size();
  return findings.finish(std::move(counts));
}

VerifyReport verify_safetensors(const Checkpoint& checkpoint, const VerifyOptions& options) {
  Findings findings(options);
  VerifyReport counts;
  counts.format = checkpoint.format();
  for (const FileSummary& file : checkpoint.files()) {
    if (!file.referenced) continue;
    ++counts.files;
    if (!file.size) findings.add({ProblemKind::kMissing, file.name, "", std::nullopt, "missing"});
    if (file.size && *file.size < file.needed)
      findings.add(
          {ProblemKind::kShort, file.name, "", *file.size, fmt::format("{} bytes are needed", file.needed)});
    findings.add_unchecked("safetensors files have no checksums", file.size.value_or(0));
  }
  const auto& tensors = checkpoint.tensors();
  counts.tensors = tensors.size();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<Box> boxes;
    for (ChunkPlace& chunk : checkpoint.chunks(i)) boxes.push_back(std::move(chunk.box));
    counts.items += boxes.size();
    if (const auto problem = find_cover_problem(tensors[i].shape, boxes))
      findings.add({ProblemKind::kUncovered, "", std::string(tensors[i].name), std::nullopt, problem->text});
  }
  return findings.finish(std::move(counts));
}

// A file that is broken from its beginning.
VerifyReport broken(const Place& place, const Error& e, const VerifyOptions& options) {
  Findings findings(options);
  VerifyReport counts;
  counts.files = 1;
  counts.format = place.is_folder()                      ? Format::kHuggingFace
                  : place.name.ends_with(".safetensors") ? Format::kSafetensors
                                                         : Format::kTorchFile;
  const std::string_view file = e.file().empty() ? std::string_view(place.name) : base_name(e.file());
  findings.add_unreadable(std::string(file), e, e.tensor());
  return findings.finish(std::move(counts));
}

VerifyReport verify_files(const FileSystem& files, const VerifyOptions& options) {
  const std::vector<FileEntry> entries = files.list();
  const std::vector<FileEntry> metadata = find_metadata(entries);
  if (metadata.empty()) {
    throw Error(ErrorCode::kNotFound, "no checkpoint here: neither .metadata nor a rank's own __N.metadata")
        .in_file(files.root());
  }
  return verify_dcp(files, entries, metadata, options);
}

VerifyReport verify_place(const std::string& url, const VerifyOptions& options) {
  const Place place = find_place(url, {.follow_links = true});
  if (place.files == nullptr) throw Error(ErrorCode::kNotFound, "no such file or directory").in_file(url);
  if (place.is_folder()) {
    const std::vector<FileEntry> entries = place.files->list();
    const std::vector<FileEntry> metadata = find_metadata(entries);
    if (!metadata.empty()) return verify_dcp(*place.files, entries, metadata, options);
  }
  try {
    const auto checkpoint = open_place(place, options.limits, nullptr);
    return checkpoint->format() == Format::kTorchFile ? verify_torch_file(place, *checkpoint, options)
                                                      : verify_safetensors(*checkpoint, options);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kCorrupt) throw;
    return broken(place, e, options);
  }
}

}  // namespace

VerifyReport verify(const FileSystem& files, const VerifyOptions& options) {
  return with_typed_errors([&] { return verify_files(files, options); });
}

VerifyReport verify(const std::string& url, const VerifyOptions& options) {
  return with_typed_errors([&] { return verify_place(url, options); });
}

}  // namespace cairn
