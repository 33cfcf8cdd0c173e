#include "save/rank_publish.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/trial.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "save/debris.h"

namespace cairn {
namespace {

constexpr std::chrono::milliseconds kPause(10);

// What was replaced, and then the files of it that nothing needs any more.
class Retired {
 public:
  // The metadata of this name goes. Only names that DCP gives count: anything else it names may be somebody's
  // own. What cannot be read any more leaves its files.
  void add(const FileSystem& files, const std::string& metadata) {
    try {
      const Metadata old = read_dcp_metadata(*files.open(metadata));
      for (const std::string& name : old.storage_data.files()) {
        const auto parsed = parse_dcp_name(name);
        if (parsed && parsed->kind == DcpName::Kind::kData) names_.insert(name);
      }
      const auto id = old.storage_meta ? old.storage_meta->save_id : std::nullopt;
      if (const auto save = id ? save_id_from(*id) : std::nullopt) saves_.insert(*save);
    } catch (const Error&) {
      // It is not there, or not readable.
    }
  }
  void add(Retired&& other) {
    names_.merge(other.names_);
    saves_.merge(other.saves_);
  }

  // The new checkpoint stands: whatever fails now is somebody else's to clean up.
  void remove_files(FileSystem& files, const RankSet& standing, bool durable) noexcept {
    try {
      LiveFiles live;
      for (int rank = 0; rank < standing.ranks; ++rank)
        live.add(read_dcp_metadata(*files.open(metadata_name(rank))));
      std::vector<std::string> gone;
      for (const FileEntry& entry : files.list()) {
        const auto parsed = parse_dcp_name(entry.name);
        const bool old =
            names_.contains(entry.name) || (parsed && parsed->save && saves_.contains(*parsed->save));
        const bool needed =
            live.has_file(entry.name) || (parsed && parsed->save && live.has_save(*parsed->save));
        if (old && !needed) gone.push_back(entry.name);
      }
      files.remove_all(gone);
      if (durable) files.sync_directory();
    } catch (...) {
      // The next save or `cairn gc` finds them.
    }
  }

 private:
  std::set<std::string> names_;
  std::set<SaveId> saves_;
};

bool is_listed(const std::vector<FileEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(), [&](const FileEntry& e) { return e.name == name; });
}

// Whether .metadata is what the set found; false also when it is gone.
bool is_found(const FileSystem& files, const RankSet& set, const Limits& limits) {
  try {
    return digest_of(files, kMetadataName, limits) == set.found;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kNotFound) return false;
    throw;
  }
}

// Their metadata is in place; in the instant in which .metadata goes it is what everybody sees. Returns the
// lock under which it went, nothing where it stays: who holds the lock may need it, or comes later than this.
std::unique_ptr<FileLock> retire_collective(FileSystem& files, const RankSet& set, bool durable,
                                            const Limits& limits, Retired& retired) {
  std::unique_ptr<FileLock> lock = lock_if_free(files, lock_name());
  if (lock == nullptr || !is_found(files, set, limits)) return nullptr;
  retired.add(files, std::string(kMetadataName));
  if (durable) files.sync_directory();  // other ranks may not have come so far yet
  CAIRN_POINT("ranks.before_retire");
  files.remove(kMetadataName);
  CAIRN_POINT("ranks.retired");
  if (durable) files.sync_directory();
  return lock;
}

// Ranks that there are no longer.
void remove_higher_ranks(FileSystem& files, const std::vector<FileEntry>& entries, const RankSet& set,
                         Retired& retired) {
  for (const FileEntry& entry : entries) {
    const auto parsed = parse_dcp_name(entry.name);
    if (!parsed || parsed->kind != DcpName::Kind::kMetadata || is_partial(entry.name)) continue;
    if (!parsed->rank || *parsed->rank < set.ranks) continue;
    const auto lock = lock_if_free(files, lock_name(parsed->rank));
    if (lock == nullptr) continue;  // it is saving after all
    retired.add(files, entry.name);
    files.remove_all({&entry.name, 1});
  }
}

// The set stands already; this is for those who know final names only. Whatever fails, the next save does.
void give_names(FileSystem& files, const std::vector<FileEntry>& entries, const CompleteSet& complete,
                bool durable) noexcept try {
  Retired retired;
  for (const auto& [rank, file] : complete.parts) {
    const std::string final = metadata_name(rank);
    if (file == final) continue;
    Retired old;
    old.add(files, final);
    CAIRN_POINT("ranks.before_name");
    try {
      files.rename(file, final);
      retired.add(std::move(old));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) throw;  // another rank was faster: what was there is its business
    }
  }
  CAIRN_POINT("ranks.named");
  remove_higher_ranks(files, entries, complete.set, retired);
  if (durable) files.sync_directory();
  CAIRN_POINT("ranks.before_remove");
  retired.remove_files(files, complete.set, durable);
} catch (...) {
}

// What no rank of the set will find among its own: left by a save of all ranks, or by ranks that there are no
// longer, of which whoever removed it died over it. Files of the list are dead when their lock is free; data
// may be that of a save of all ranks, whichever rank wrote it, so the lock of those is held as well.
void remove_foreign_debris(FileSystem& files, const RankSet& set, const FileLock* of_all) noexcept try {
  if (of_all == nullptr || !of_all->is_exclusive() || files.stat(kMetadataName)) return;
  std::map<std::optional<int>, std::vector<std::string>> by_owner;
  for (const FileEntry& entry : files.list()) {
    const auto parsed = parse_dcp_name(entry.name);
    if (!parsed || (parsed->rank && *parsed->rank < set.ranks)) continue;
    const bool has_save = parsed->save || parsed->kind == DcpName::Kind::kClaim;
    if (has_save || is_partial(entry.name)) by_owner[parsed->rank].push_back(entry.name);
  }
  for (const auto& [owner, names] : by_owner) {
    const auto own = owner ? lock_if_free(files, lock_name(owner)) : nullptr;
    if (owner && (own == nullptr || !own->is_exclusive() || files.stat(metadata_name(owner)))) continue;
    files.remove_all(names);
  }
} catch (...) {
}

bool has_next_names(const std::vector<FileEntry>& entries, const RankSet& set) {
  return std::any_of(entries.begin(), entries.end(), [&](const FileEntry& entry) {
    const auto parsed = parse_dcp_name(entry.name);
    return parsed && parsed->kind == DcpName::Kind::kNextMetadata && !is_partial(entry.name) &&
           set == RankSet{parsed->found, parsed->number, parsed->attempt};
  });
}

bool try_to_complete(FileSystem& files, const RankSet& set, bool durable, const Limits& limits) {
  const std::vector<FileEntry> entries = files.list();
  if (!is_listed(entries, kMetadataName)) {
    const auto complete = complete_set_in(files, entries, limits);
    if (complete && complete->set == set) {
      give_names(files, entries, *complete, durable);
      remove_foreign_debris(files, set, lock_soon(files, lock_name()).get());
      return true;
    }
    // One that waits and replaces nothing of what is here never stands.
    return !has_next_names(entries, set) && is_complete(set, files, entries, limits);
  }
  if (!is_complete(set, files, entries, limits)) return false;
  Retired retired;
  const auto lock = retire_collective(files, set, durable, limits, retired);
  if (lock == nullptr) return false;
  remove_higher_ranks(files, entries, set, retired);
  retired.remove_files(files, set, durable);
  remove_foreign_debris(files, set, lock.get());
  return true;
}

}  // namespace

std::unique_ptr<FileLock> lock_if_free(FileSystem& files, std::string_view name) {
  try {
    return files.lock(name);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kConflict) return nullptr;
    throw;
  }
}

std::unique_ptr<FileLock> lock_soon(FileSystem& files, std::string_view name) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;; std::this_thread::sleep_for(kPause)) {
    std::unique_ptr<FileLock> lock = lock_if_free(files, name);
    if (lock != nullptr || std::chrono::steady_clock::now() >= until) return lock;
  }
}

bool complete_set(FileSystem& files, const RankSet& set, bool durable, const Limits& limits,
                  std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;; std::this_thread::sleep_for(kPause)) {
    const bool last = std::chrono::steady_clock::now() >= until;
    try {
      if (try_to_complete(files, set, durable, limits)) return true;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound || last) throw;  // it was listed, and another rank has renamed it
    }
    if (last) return false;
  }
}

void complete_any_set(FileSystem& files, bool durable, const Limits& limits) {
  const std::vector<FileEntry> entries = files.list();
  if (is_listed(entries, kMetadataName)) return;
  if (const auto complete = complete_set_in(files, entries, limits))
    give_names(files, entries, *complete, durable);
}

}  // namespace cairn
