#include "checkpoint/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/source.h"
#include "base/trial.h"
#include "base/wire_bytes.h"
#include "cairn/error.h"
#include "checkpoint/dcp_checkpoint.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/rank_sets.h"
#include "checkpoint/read_bounded.h"
#include "checkpoint/seen_now.h"
#include "format/dcp_metadata.h"

namespace cairn {
namespace {

constexpr std::uint32_t kMagic = 0x43534443;  // "CDSC"
constexpr std::uint32_t kVersion = 1;
constexpr int kTries = 3;         // to find one file
constexpr int kMostTries = 1000;  // of a checkpoint that is always another one

// A file that was listed or named is not there: perhaps because a save replaced the checkpoint meanwhile.
struct FileIsGone {
  std::string name;
  Error error;  // if it is gone for good
};

FileIsGone gone_manifest(const FileSystem& files, const std::string& name) {
  Error error(ErrorCode::kCorrupt,
              "the checkpoint's manifest is missing; without it nothing can be verified. To load what is "
              "there as it is, set verify to none");
  error.in_file(files.root() + "/" + name);
  return {name, std::move(error)};
}

Metadata parse(const DescriptionPart& part, const std::string& root, const Limits& limits) {
  const std::string path = root + "/" + part.name;
  try {
    return read_dcp_metadata(*memory_source(as_bytes(part.metadata), path), limits);
  } catch (Error& e) {
    e.in_file(path);
    throw;
  }
}

ManifestClaim claim_of(const Metadata& metadata, std::string_view name, const std::string& root) {
  try {
    return manifest_of(metadata, name);
  } catch (Error& e) {
    e.in_file(root + "/" + std::string(name));
    throw;
  }
}

// What `read` returns, of a file that may go meanwhile.
template <class Read> auto unless_gone(std::string_view name, const Read& read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound) throw;
    throw FileIsGone{std::string(name), e};
  }
}

// `file` is where the metadata of this name is now.
DescriptionPart fetch_part(const FileSystem& files, std::string_view name, const std::string& file,
                           bool manifests, const Limits& limits, std::vector<Metadata>& parsed) {
  DescriptionPart part;
  part.name = name;
  part.metadata = unless_gone(file, [&] { return read_bounded(files, file, limits.metadata_bytes); });
  CAIRN_POINT("load.before_manifest");
  if (!manifests) return part;
  parsed.push_back(parse(part, files.root(), limits));
  const ManifestClaim claim = claim_of(parsed.back(), name, files.root());
  if (claim.name.empty()) return part;
  if (!files.stat(claim.name)) {
    if (claim.required) throw gone_manifest(files, claim.name);
    return part;
  }
  part.manifest_name = claim.name;
  part.manifest =
      unless_gone(claim.name, [&] { return read_bounded(files, claim.name, limits.manifest_bytes); });
  return part;
}

// What stands here without .metadata, which may have come by now. A set of which ranks are missing may be two
// that were looked at while one took the place of the other: they are looked at again.
StandingRanks settled_ranks(const FileSystem& files, const std::vector<FileEntry>& entries,
                            const Limits& limits) {
  const auto now = [&](const std::vector<FileEntry>& all) {
    const auto is_metadata = [](const FileEntry& entry) { return entry.name == kMetadataName; };
    const std::string name(kMetadataName);
    if (std::any_of(all.begin(), all.end(), is_metadata))
      throw FileIsGone{
          name, Error(ErrorCode::kNotFound, "is listed, and not there").in_file(files.root() + "/" + name)};
    return unless_gone("__N.metadata", [&] { return standing_ranks(files, all, limits); });
  };
  StandingRanks standing = now(entries);
  if (standing.missing.empty() || now(files.list()) == standing) return standing;
  throw FileIsGone{metadata_name(standing.missing.front()),
                   Error(ErrorCode::kConflict,
                         "the ranks that have saved here are others each time one looks: saves under this id "
                         "come faster than it can be read")
                       .in_file(files.root())};
}

// The metadata of ranks that each saved for itself. Error(kNotFound) when there is none.
StandingRanks rank_local_files(const FileSystem& files, const Limits& limits, std::string* note) {
  const std::vector<FileEntry> entries = files.list();
  StandingRanks standing = settled_ranks(files, entries, limits);
  if (standing.parts.empty()) {
    const bool unfinished = std::any_of(entries.begin(), entries.end(), [](const FileEntry& entry) {
      const std::optional<DcpName> name = parse_dcp_name(entry.name);
      return name && name->kind != DcpName::Kind::kLock;
    });
    throw Error(ErrorCode::kNotFound,
                unfinished
                    ? "there are data files here, but neither .metadata nor a rank's own __N.metadata: a "
                      "save is still running, or it was stopped before it finished"
                    : "there is no checkpoint here: neither .metadata nor a rank's own __N.metadata")
        .in_file(files.root());
  }
  if (note != nullptr) {
    *note = standing.missing.empty()
                ? unless_gone("__N.metadata", [&] { return find_incomplete(files, entries, limits); })
                : fmt::format(
                      "the ranks save each for itself here (use_collectives=False), and there is "
                      "nothing yet of rank {}",
                      fmt::join(standing.missing, ", "));
  }
  return standing;
}

// The part of one of the ranks that stand. What has the name of one when it is opened may be of a set that
// came in between.
DescriptionPart fetch_rank_part(const FileSystem& files, int rank, const std::string& file,
                                const StandingRanks& standing, bool manifests, const Limits& limits,
                                std::vector<Metadata>& parsed) {
  const std::string name = metadata_name(rank);
  DescriptionPart part = fetch_part(files, name, file, manifests, limits, parsed);
  if (!manifests) parsed.push_back(parse(part, files.root(), limits));
  const bool first = rank == standing.parts.begin()->first;
  if (rank_set_of(parsed.back()) == standing.set || (!standing.set && !first)) return part;
  throw FileIsGone{file, Error(ErrorCode::kConflict,
                               "the metadata of the ranks is of different saves each time it is read: saves "
                               "under this id come faster than it can be read")
                             .in_file(files.root() + "/" + file)};
}

std::vector<DescriptionPart> fetch_parts(const FileSystem& files, bool manifests, const Limits& limits,
                                         std::vector<Metadata>& parsed, std::string* note = nullptr) {
  std::vector<DescriptionPart> parts;
  if (files.stat(kMetadataName)) {
    const std::string name(kMetadataName);
    parts.push_back(fetch_part(files, name, name, manifests, limits, parsed));
    if (note != nullptr)
      *note = unless_gone(name, [&] { return find_incomplete(files, files.list(), limits); });
    return parts;
  }
  std::uint64_t bytes = 0;
  const StandingRanks standing = rank_local_files(files, limits, note);
  for (const auto& [rank, file] : standing.parts) {
    parts.push_back(fetch_rank_part(files, rank, file, standing, manifests, limits, parsed));
    bytes += parts.back().metadata.size();
    if (bytes <= limits.metadata_bytes) continue;
    throw Error(ErrorCode::kLimit,
                fmt::format("the ranks' metadata are more than the {} bytes allowed", limits.metadata_bytes))
        .in_file(files.root());
  }
  return parts;
}

void put_text(std::string& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  out.append(text);
}

std::string text_of(WireReader& reader) { return std::string(reader.text(reader.get<std::uint64_t>())); }

std::vector<DescriptionPart> cut(std::string_view bytes) {
  WireReader reader(as_bytes(bytes));
  if (reader.get<std::uint32_t>() != kMagic) reader.fail("is no description of a checkpoint");
  if (reader.get<std::uint32_t>() != kVersion)
    throw Error(ErrorCode::kUnsupported, "another rank runs another version of cairn");
  const auto count = reader.get<std::uint32_t>();
  if (count == 0) reader.fail("describes nothing");
  std::vector<DescriptionPart> parts;
  for (std::uint32_t i = 0; i < count; ++i) {
    DescriptionPart part;
    part.name = text_of(reader);
    part.metadata = text_of(reader);
    part.manifest_name = text_of(reader);
    part.manifest = text_of(reader);
    parts.push_back(std::move(part));
  }
  reader.finish();
  return parts;
}

// The metadata as the manifest knows it: its size, and the CRC of each block.
void check_metadata(const DescriptionPart& part, const Manifest& manifest, const std::string& root) {
  const auto known = std::find_if(manifest.files.begin(), manifest.files.end(),
                                  [&](const ManifestFile& file) { return file.name == part.name; });
  if (known == manifest.files.end()) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the manifest says nothing about {}", part.name))
        .in_file(root + "/" + part.manifest_name);
  }
  const ByteSpan bytes = as_bytes(part.metadata);
  bool right = known->size == bytes.size();
  std::uint64_t at = 0;
  for (const std::uint32_t crc : known->block_crcs) {
    if (!right) break;
    const ByteSpan block = bytes.subspan(at, std::min<std::uint64_t>(manifest.block_size, bytes.size() - at));
    right = crc32(block) == crc;
    if (right) at += block.size();
  }
  if (right) return;
  throw Error(ErrorCode::kCorrupt,
              "the metadata is not what its manifest says: it has changed since it was "
              "written")
      .in_file(root + "/" + part.name)
      .at(at);
}

// Metadata that does not say which save it is of cannot be of a save whose files say so: it has changed.
void require_foreign_files(const Metadata& metadata) {
  for (const std::string& file : metadata.storage_data.files()) {
    const std::optional<DcpName> name = parse_dcp_name(file);
    if (!name || !name->save) continue;
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the metadata names the file {} of a save by cairn, but not the "
                            "save: it has changed since it was written",
                            file));
  }
}

Manifest read_part_manifest(const DescriptionPart& part, const Metadata& metadata, const std::string& root,
                            const Limits& limits) {
  const std::string path = root + "/" + part.manifest_name;
  Manifest manifest;
  try {
    manifest = read_manifest(*memory_source(as_bytes(part.manifest), path), limits);
  } catch (Error& e) {
    e.in_file(path);
    throw;
  }
  if (to_string(manifest.save_id) != metadata.storage_meta->save_id) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the manifest is of the save {}, the metadata of {}", to_string(manifest.save_id),
                            *metadata.storage_meta->save_id))
        .in_file(path);
  }
  if (manifest.block_size != kManifestBlock) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a manifest with blocks of {} bytes", manifest.block_size))
        .in_file(path);
  }
  check_metadata(part, manifest, root);
  return manifest;
}

// Which of the parts of a rank-local checkpoint is this rank's.
std::size_t part_of(const std::vector<DescriptionPart>& parts, int rank, const std::string& root) {
  const std::string name = metadata_name(rank);
  const auto own = std::find_if(parts.begin(), parts.end(),
                                [&](const DescriptionPart& part) { return part.name == name; });
  if (own != parts.end()) return static_cast<std::size_t>(own - parts.begin());
  throw Error(ErrorCode::kNotFound,
              fmt::format("each of {} ranks saved a checkpoint of its own here (use_collectives=False), and "
                          "rank {} was not among them: there is no {}",
                          parts.size(), rank, name))
      .in_file(root);
}

}  // namespace

ManifestClaim manifest_of(const Metadata& metadata, std::string_view name) {
  const StorageMeta meta = metadata.storage_meta.value_or(StorageMeta());
  ManifestClaim claim;
  if (const auto save = meta.save_id ? save_id_from(*meta.save_id) : std::nullopt) {
    const std::optional<DcpName> dcp_name = parse_dcp_name(name);
    claim.name = manifest_name(*save, dcp_name ? dcp_name->rank : std::nullopt);
  }
  const Value* said = meta.extra.find(Key(std::string(kManifestEntry)));
  if (said == nullptr) {
    if (claim.name.empty()) require_foreign_files(metadata);
    return claim;
  }
  claim.required = true;
  const auto* text = said->get_if<std::string>();
  if (text == nullptr || claim.name.empty() || *text != claim.name) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the metadata names the manifest {}, its save id says '{}'",
                                                 to_string(*said, 80), claim.name));
  }
  return claim;
}

bool is_described_by(const FileSystem& files, const Description& description, const Limits& limits) {
  try {
    std::vector<Metadata> parsed;
    const std::vector<DescriptionPart> now = fetch_parts(files, false, limits, parsed);
    return std::equal(now.begin(), now.end(), description.made_of.begin(), description.made_of.end(),
                      [](const DescriptionPart& part, const auto& known) {
                        return part.name == known.first && xxh3_128(as_bytes(part.metadata)) == known.second;
                      });
  } catch (const FileIsGone&) {
    return false;
  }
}

std::string fetch_dcp_description(std::shared_ptr<const FileSystem>& files, bool manifests,
                                  const Limits& limits, std::vector<Metadata>* parsed, std::string* note) {
  std::vector<DescriptionPart> parts;
  std::vector<Metadata> understood;
  std::string last;
  for (int tries = 1, in_a_row = 0;; ++tries) {
    try {
      understood.clear();
      files = seen_now(files);
      parts = fetch_parts(*files, manifests, limits, understood, note);
      break;
    } catch (const FileIsGone& gone) {
      in_a_row = gone.name == last ? in_a_row + 1 : 1;
      if (in_a_row == kTries || tries == kMostTries) throw Error(gone.error);
      last = gone.name;
    }
  }
  std::string out;
  put(out, kMagic);
  put(out, kVersion);
  put(out, static_cast<std::uint32_t>(parts.size()));
  for (const DescriptionPart& part : parts) {
    for (const std::string* text : {&part.name, &part.metadata, &part.manifest_name, &part.manifest})
      put_text(out, *text);
  }
  if (parsed != nullptr) *parsed = std::move(understood);
  return out;
}

Description read_description(std::string_view bytes, const std::string& root, bool verify,
                             const Limits& limits, std::vector<Metadata> parsed, std::optional<int> rank) {
  Description description;
  std::vector<Metadata> all;
  const std::vector<DescriptionPart> parts = cut(bytes);
  description.rank_local = parts.front().name != kMetadataName;
  const std::size_t own = rank && description.rank_local ? part_of(parts, *rank, root) : 0;
  for (const DescriptionPart& part : parts) {
    description.made_of.emplace_back(part.name, xxh3_128(as_bytes(part.metadata)));
    const bool known = parsed.size() == parts.size();
    all.push_back(known ? std::move(parsed[all.size()]) : parse(part, root, limits));
    if (!verify) continue;
    const ManifestClaim claim = claim_of(all.back(), part.name, root);
    const bool absent = part.manifest_name.empty() && !claim.required;
    if (!absent && part.manifest_name != claim.name) {
      throw Error(ErrorCode::kCorrupt, "a description of a checkpoint contradicts itself").in_file(root);
    }
    if (part.manifest_name.empty()) continue;
    description.has_manifest = true;
    for (ManifestFile& file : read_part_manifest(part, all.back(), root, limits).files) {
      file.items = {};
      file.block_hashes = {};
      std::string name = file.name;
      description.sums.insert_or_assign(std::move(name), std::move(file));
    }
  }
  description.metadata = all.size() == 1 ? std::move(all.front())
                         : rank          ? merge_for_rank(std::move(all), own)
                                         : merge_rank_local(std::move(all));
  return description;
}

}  // namespace cairn
