// The names of a checkpoint's files, and whose they are.
//
// Data files and manifests carry the id of the save that wrote them, so a save never touches a file of the
// checkpoint it replaces, and what a dead save left behind can be told from everything else.
//
//   __{rank}_{n}.{save id}.distcp     data            (torch writes __{rank}_{n}.distcp)
//   .cairn-manifest.{save id}         checksums       rank-local saves: __{rank}.cairn-manifest.{save id}
//   .metadata                         the description; its storage_meta names the save id
//   __{rank}.metadata                 the same of one rank, in rank-local saves
//   __{rank}.metadata.{ranks}-...     the same, of one that waits for others (rank_sets.h)
//   .metadata.{save id}               the description that is about to become .metadata
//   .cairn-claim.{old}.{n}            the right to do that (save/claim.h)
//   .cairn-lock                       held while a save or a clean-up is under way
//
// The last three begin with __{rank} in rank-local saves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cairn/metadata.h"

namespace cairn {

inline constexpr std::string_view kMetadataName = ".metadata";
inline constexpr std::string_view kLockName = ".cairn-lock";

std::string data_file_name(int rank, int number, const SaveId& save);
// `rank` is given in rank-local saves only, here and below.
std::string manifest_name(const SaveId& save, std::optional<int> rank = std::nullopt);
std::string metadata_name(std::optional<int> rank = std::nullopt);
std::string lock_name(std::optional<int> rank = std::nullopt);
std::string pending_metadata_name(const SaveId& save, std::optional<int> rank = std::nullopt);
// Of a rank-local save by `ranks` ranks; what they found and the attempt tell it from those of other saves.
std::string next_metadata_name(int rank, int ranks, const SaveId& found, const SaveId& attempt);
// `number` counts from 1.
std::string claim_name(std::string_view old, int number, std::optional<int> rank = std::nullopt);

SaveId random_save_id();
std::optional<SaveId> save_id_from(std::string_view text);  // the inverse of to_string

// What a name says of its file.
struct DcpName {
  enum class Kind { kData, kManifest, kMetadata, kNextMetadata, kPendingMetadata, kClaim, kLock };
  Kind kind = Kind::kData;
  std::optional<int> rank;
  std::optional<SaveId> save;  // absent: torch's own name, or a kind that has none
  std::string old = {};        // of a claim
  int number = 0;              // of a claim; of kNextMetadata: how many ranks there are
  SaveId found{}, attempt{};   // of kNextMetadata
};
// nullopt for a name that is none of ours and none of torch's. A partial file (is_partial) is named by what
// it was going to be.
std::optional<DcpName> parse_dcp_name(std::string_view name);

}  // namespace cairn
