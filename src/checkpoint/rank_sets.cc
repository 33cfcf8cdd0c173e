#include "checkpoint/rank_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/read_bounded.h"
#include "format/dcp_metadata.h"

namespace cairn {
namespace {

constexpr std::string_view kFoundEntry = "cairn_found";
constexpr std::string_view kRanksEntry = "cairn_ranks";
constexpr std::string_view kAttemptEntry = "cairn_attempt";

std::optional<SaveId> id_in(const Dict& extra, std::string_view name) {
  const Value* found = extra.find(Key(std::string(name)));
  const auto* text = found == nullptr ? nullptr : found->get_if<std::string>();
  return text == nullptr ? std::nullopt : save_id_from(*text);
}

// The metadata of ranks in a directory, by what its names say.
struct RankNames {
  RankFiles final;
  std::map<RankSet, RankFiles> next;
  bool collective = false;  // .metadata is there
};

RankNames names_in(const std::vector<FileEntry>& entries) {
  RankNames names;
  for (const FileEntry& entry : entries) {
    if (entry.name == kMetadataName) names.collective = true;
    const auto parsed = parse_dcp_name(entry.name);
    if (!parsed || !parsed->rank || is_partial(entry.name)) continue;
    if (parsed->kind == DcpName::Kind::kMetadata) names.final.emplace(*parsed->rank, entry.name);
    if (parsed->kind == DcpName::Kind::kNextMetadata)
      names.next[{parsed->found, parsed->number, parsed->attempt}].emplace(*parsed->rank, entry.name);
  }
  return names;
}

// Metadata that cannot be read belongs to no set; whoever wants what it describes learns why.
std::optional<RankSet> set_in_file(const FileSystem& files, const std::string& name, const Limits& limits) {
  try {
    return rank_set_of(read_dcp_metadata(*files.open(name), limits));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kNotFound) throw;
    return std::nullopt;
  }
}

// Which file holds a rank's part that has one of these names: a name promises nothing. Whoever completes the
// set may give it its final name at any time.
std::optional<std::string> holder_of(const RankSet& set, int rank, const std::string& next,
                                     const FileSystem& files, const Limits& limits) {
  try {
    return set_in_file(files, next, limits) == set ? std::optional(next) : std::nullopt;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound) throw;
    std::string final = metadata_name(rank);
    return set_in_file(files, final, limits) == set ? std::optional(std::move(final)) : std::nullopt;
  }
}

RankFiles members(const RankSet& set, const RankNames& names, const FileSystem& files, const Limits& limits) {
  RankFiles found;
  if (const auto next = names.next.find(set); next != names.next.end()) {
    for (const auto& [rank, file] : next->second)
      if (auto holder = holder_of(set, rank, file, files, limits)) found.emplace(rank, std::move(*holder));
  }
  for (const auto& [rank, file] : names.final)
    if (rank < set.ranks && !found.contains(rank) && set_in_file(files, file, limits) == set)
      found.emplace(rank, file);
  return found;
}

// The members of a set, if it has all. Metadata is looked into only when the names could be enough.
std::optional<RankFiles> all_members(const RankSet& set, const RankNames& names, const FileSystem& files,
                                     const Limits& limits) {
  const auto next = names.next.find(set);
  std::size_t could = next == names.next.end() ? 0 : next->second.size();
  for (const auto& [rank, file] : names.final)
    if (rank < set.ranks && (next == names.next.end() || !next->second.contains(rank))) ++could;
  if (could < static_cast<std::size_t>(set.ranks)) return std::nullopt;
  RankFiles found = members(set, names, files, limits);
  return found.size() == static_cast<std::size_t>(set.ranks) ? std::optional(std::move(found)) : std::nullopt;
}

std::vector<int> missing_of(const RankSet& set, const RankFiles& members) {
  std::vector<int> missing;
  for (int rank = 0; rank < set.ranks; ++rank)
    if (!members.contains(rank)) missing.push_back(rank);
  return missing;
}

// Whether a set replaces those that have their final names, or has begun to. The lowest rank goes first.
bool replaces_named(const RankSet& set, const RankNames& names, const FileSystem& files,
                    const Limits& limits) {
  if (names.final.empty()) return true;
  const std::string& first = names.final.begin()->second;
  return digest_of(files, first, limits) == set.found || set_in_file(files, first, limits) == set;
}

// A set that has all its files, some of them not under their final names.
std::optional<CompleteSet> unnamed_and_complete(const RankNames& names, const FileSystem& files,
                                                const Limits& limits) {
  for (const auto& [set, next] : names.next) {
    std::optional<RankFiles> all = all_members(set, names, files, limits);
    if (all && replaces_named(set, names, files, limits)) return CompleteSet{set, std::move(*all)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<RankSet> rank_set_of(const Metadata& metadata) {
  if (!metadata.storage_meta) return std::nullopt;
  const Dict& extra = metadata.storage_meta->extra;
  const Value* ranks = extra.find(Key(std::string(kRanksEntry)));
  const auto* count = ranks == nullptr ? nullptr : ranks->get_if<std::int64_t>();
  const auto found = id_in(extra, kFoundEntry), attempt = id_in(extra, kAttemptEntry);
  if (!found || !attempt || count == nullptr || *count < 1 || *count > 100'000'000) return std::nullopt;
  return RankSet{*found, static_cast<int>(*count), *attempt};
}

void note_rank_set(StorageMeta& meta, const RankSet& set) {
  meta.extra.set(std::string(kFoundEntry), Value(to_string(set.found)));
  meta.extra.set(std::string(kRanksEntry), Value(set.ranks));
  meta.extra.set(std::string(kAttemptEntry), Value(to_string(set.attempt)));
}

SaveId digest_of(const FileSystem& files, std::string_view name, const Limits& limits) {
  return xxh3_128(as_bytes(read_bounded(files, name, limits.metadata_bytes)));
}

bool is_complete(const RankSet& set, const FileSystem& files, const std::vector<FileEntry>& entries,
                 const Limits& limits) {
  return all_members(set, names_in(entries), files, limits).has_value();
}

std::optional<CompleteSet> complete_set_in(const FileSystem& files, const std::vector<FileEntry>& entries,
                                           const Limits& limits) {
  return unnamed_and_complete(names_in(entries), files, limits);
}

StandingRanks standing_ranks(const FileSystem& files, const std::vector<FileEntry>& entries,
                             const Limits& limits) {
  const RankNames names = names_in(entries);
  if (auto complete = unnamed_and_complete(names, files, limits))
    return {std::move(complete->parts), {}, complete->set};
  if (names.final.empty()) return {};
  const auto set = set_in_file(files, names.final.begin()->second, limits);
  if (!set) return {names.final, {}, {}};
  // What does not belong to it was left by ranks that are no longer there.
  StandingRanks standing{{}, {}, set};
  for (const auto& [rank, file] : names.final)
    if (rank < set->ranks && set_in_file(files, file, limits) == set) standing.parts.emplace(rank, file);
  standing.missing = missing_of(*set, standing.parts);
  return standing;
}

std::string name_beside(int rank, const RankSet& set) {
  return next_metadata_name(rank, set.ranks, set.found, set.attempt);
}

NextSet next_set(const FileSystem& files, const std::vector<FileEntry>& entries, int ranks,
                 const SaveId& attempt, const Limits& limits) {
  const RankNames names = names_in(entries);
  if (names.collective) return {{digest_of(files, kMetadataName, limits), ranks, attempt}, false};
  if (const auto complete = unnamed_and_complete(names, files, limits))
    return {{digest_of(files, complete->parts.begin()->second, limits), ranks, attempt}, true};
  if (names.final.empty()) return {{{}, ranks, attempt}, false};
  const std::string& first = names.final.begin()->second;
  // Only where there was nothing before has a set its final names before it is complete: others join it then.
  const auto set = set_in_file(files, first, limits);
  if (set && set->found == SaveId{} && !all_members(*set, names, files, limits))
    return {{{}, ranks, attempt}, false};
  return {{digest_of(files, first, limits), ranks, attempt}, true};
}

std::string find_incomplete(const FileSystem& files, const std::vector<FileEntry>& entries,
                            const Limits& limits) {
  const RankNames names = names_in(entries);
  std::set<RankSet> sets;
  for (const auto& [set, next] : names.next) sets.insert(set);
  if (names.collective && !names.final.empty()) {
    const SaveId found = digest_of(files, kMetadataName, limits);
    for (const auto& [rank, file] : names.final)
      if (const auto set = set_in_file(files, file, limits); set && set->found == found) sets.insert(*set);
  }
  for (const RankSet& set : sets) {
    const std::vector<int> missing = missing_of(set, members(set, names, files, limits));
    if (missing.empty()) continue;
    return fmt::format(
        "a later save by each of {} ranks for itself (use_collectives=False) is not complete: nothing is "
        "here "
        "yet of rank {}. What was loaded is the checkpoint before it",
        set.ranks, fmt::join(missing, ", "));
  }
  return {};
}

}  // namespace cairn
