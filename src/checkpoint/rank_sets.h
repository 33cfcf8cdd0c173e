// Checkpoints whose ranks each save for themselves (use_collectives = false): which one stands, and which is
// still coming together.
//
// Such ranks need not know of each other. Each says in its metadata how many ranks there are, by a digest
// which checkpoint it found in the directory and is going to replace, and, where they could tell each other,
// which attempt this is; those that say the same are one set. Until every rank of a set is there, the
// checkpoint that it replaces stands:
//
//   found nothing              __{rank}.metadata at once: there is nothing to keep
//   found .metadata            __{rank}.metadata at once: nobody looks there while .metadata is. Whoever
//                              completes the set removes .metadata, and in that instant the set stands
//   found __{rank}.metadata    a name of its own (dcp_names.h): the set stands in the instant in which its
//                              last one appears. Whoever completes it gives them their final names
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/limits.h"
#include "cairn/metadata.h"
#include "cairn/storage.h"

namespace cairn {

// Ranks that belong together.
struct RankSet {
  SaveId found{};  // a digest of what they replace; zeros for nothing
  int ranks = 0;   // how many there are to be
  SaveId attempt{};
  auto operator<=>(const RankSet&) const = default;
};

// What the metadata of a rank says of it; nullopt where all ranks wrote it together, or others than cairn.
std::optional<RankSet> rank_set_of(const Metadata& metadata);
void note_rank_set(StorageMeta& meta, const RankSet& set);

// By which a set knows metadata that it found. Error(kLimit) when that is larger than metadata may be.
SaveId digest_of(const FileSystem& files, std::string_view name, const Limits& limits);

// The files that hold the metadata of ranks, by rank.
using RankFiles = std::map<int, std::string>;

// Whether every rank of a set is there, under either name. Error(kNotFound), here and below, when a file that
// was listed is gone: list again.
bool is_complete(const RankSet& set, const FileSystem& files, const std::vector<FileEntry>& entries,
                 const Limits& limits = {});

// A set that is complete and stands, unless .metadata is there, and whose files have not all got their final
// names.
struct CompleteSet {
  RankSet set;
  RankFiles parts;
};
std::optional<CompleteSet> complete_set_in(const FileSystem& files, const std::vector<FileEntry>& entries,
                                           const Limits& limits = {});

// What stands in a directory without .metadata.
struct StandingRanks {
  RankFiles parts;           // empty when there is nothing
  std::vector<int> missing;  // ranks of its set that are not there: the first save here is not complete
  // What the metadata of each of them says; nullopt where the first says nothing.
  std::optional<RankSet> set;
  bool operator==(const StandingRanks&) const = default;
};
StandingRanks standing_ranks(const FileSystem& files, const std::vector<FileEntry>& entries,
                             const Limits& limits = {});

std::string name_beside(int rank, const RankSet& set);  // until the set is complete

// The set that one of `ranks` ranks belongs to that saves now.
struct NextSet {
  RankSet set;
  bool beside = false;  // the metadata of ranks that is there must stay until the set is complete
};
NextSet next_set(const FileSystem& files, const std::vector<FileEntry>& entries, int ranks,
                 const SaveId& attempt, const Limits& limits = {});

// Of a save by single ranks that is not complete, beside the checkpoint that stands: who is missing, in words
// for the user. Empty when there is none.
std::string find_incomplete(const FileSystem& files, const std::vector<FileEntry>& entries,
                            const Limits& limits = {});

}  // namespace cairn
