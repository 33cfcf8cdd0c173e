// What every rank has to know of a DCP checkpoint: its metadata and its checksums, as bytes that travel from
// the rank that read them to the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/seeded_hash.h"
#include "cairn/limits.h"
#include "cairn/metadata.h"
#include "cairn/storage.h"
#include "format/manifest.h"

namespace cairn {

// `.metadata` or one rank's `__{rank}.metadata`, and the manifest it names.
struct DescriptionPart {
  std::string name;           // of the metadata file
  std::string metadata;       // its bytes
  std::string manifest_name;  // empty: there is none
  std::string manifest;
};

// Where the StorageMeta of a cairn save names its manifest.
inline constexpr std::string_view kManifestEntry = "cairn_manifest";

// The manifest that belongs to the metadata of a file.
struct ManifestClaim {
  std::string name;       // empty: the save was not cairn's
  bool required = false;  // the save wrote one, so it has to be there
};
// Error(kCorrupt) when the metadata contradicts itself.
ManifestClaim manifest_of(const Metadata& metadata, std::string_view name);

// Reads `.metadata`, or all rank-local ones, and their manifests unless `manifests` is false.
// Error(kNotFound) when the directory holds no checkpoint, kCorrupt when a manifest is missing.
// Fills `parsed`, if given, with the metadata of each part as far as it had to be understood, and `note` with
// what the user should know: ranks that are missing in a later checkpoint. `files` becomes the folder as it
// was seen (FileSystem::as_of_now).
std::string fetch_dcp_description(std::shared_ptr<const FileSystem>& files, bool manifests,
                                  const Limits& limits, std::vector<Metadata>* parsed = nullptr,
                                  std::string* note = nullptr);

// A description, understood.
struct Description {
  Metadata metadata;
  bool rank_local = false;  // each rank has a part of its own, so that ranks may differ in what a name is
  bool has_manifest = false;
  MapByName<std::string, ManifestFile> sums;  // by data file; without the items
  // The metadata it was made of: names, and digests of their bytes.
  std::vector<std::pair<std::string, std::array<std::byte, 16>>> made_of;
};

// Whether the checkpoint that stands in the directory is still the one that was described. Error(kNotFound)
// when there is none any more.
bool is_described_by(const FileSystem& files, const Description& description, const Limits& limits);

// `root` is what to call the checkpoint in messages. Error(kCorrupt) for bytes that fetch_dcp_description
// never makes, and when metadata and manifest do not belong together or have changed. `parsed` is what
// fetch_dcp_description made of the same bytes, or empty. With `rank` a rank-local checkpoint is described as
// this rank sees it, its own part first: Error(kNotFound) when it has none.
Description read_description(std::string_view bytes, const std::string& root, bool verify,
                             const Limits& limits, std::vector<Metadata> parsed = {},
                             std::optional<int> rank = std::nullopt);

}  // namespace cairn
