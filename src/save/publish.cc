#include "save/publish.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/source.h"
#include "base/trial.h"
#include "base/utf8.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "save/claim.h"
#include "save/debris.h"
#include "save/rank_publish.h"
#include "storage/write_file.h"

namespace cairn {
namespace {

constexpr std::string_view kDcpVersion = "1.0.0";
constexpr std::string_view kManifestKey = "cairn_manifest";

constexpr int kMostLooks = 3;  // at what other ranks may be changing

ManifestFile sums_of(std::string name, std::string_view bytes, bool strong) {
  ChecksumStream sums(strong);
  sums.append(as_bytes(bytes));
  return sums.finish(std::move(name));
}

bool is_torchs(const std::string& name) {
  const auto parsed = parse_dcp_name(name);
  return parsed && parsed->kind == DcpName::Kind::kData && !parsed->save;
}

// The "__N.metadata" among these.
std::vector<std::string> rank_metadata_in(const std::vector<FileEntry>& all) {
  std::vector<std::string> names;
  for (const FileEntry& entry : all) {
    const auto parsed = parse_dcp_name(entry.name);
    if (parsed && parsed->kind == DcpName::Kind::kMetadata && parsed->rank && !is_partial(entry.name))
      names.push_back(entry.name);
  }
  return names;
}

// The metadata of one rank: what loads, and what waits for others.
std::vector<std::string> metadata_of_rank(const std::vector<FileEntry>& all, int rank) {
  std::vector<std::string> names;
  for (const FileEntry& entry : all) {
    const auto parsed = parse_dcp_name(entry.name);
    if (!parsed || parsed->rank != rank || is_partial(entry.name)) continue;
    if (parsed->kind == DcpName::Kind::kMetadata || parsed->kind == DcpName::Kind::kNextMetadata)
      names.push_back(entry.name);
  }
  return names;
}

// The files that the metadata of this name stands for: those it names, and all that carry the id of its save.
// None when it cannot be read. Only names that DCP gives: anything else a metadata names may be somebody's
// own.
std::vector<std::string> files_of(const FileSystem& now, const std::string& metadata) {
  std::vector<std::string> names;
  try {
    const std::shared_ptr<const FileSystem> seen = now.as_of_now();
    const FileSystem& files = seen ? *seen : now;
    const Metadata old = read_dcp_metadata(*files.open(metadata));
    const auto id = old.storage_meta ? old.storage_meta->save_id : std::nullopt;
    const auto save = id ? save_id_from(*id) : std::nullopt;
    for (const std::string& name : old.storage_data.files()) {
      const auto parsed = parse_dcp_name(name);
      if (parsed && parsed->kind == DcpName::Kind::kData) names.push_back(name);
    }
    if (!save) return names;
    // Not everything can be listed everywhere.
    names.push_back(manifest_name(*save, parse_dcp_name(metadata)->rank));
    for (const FileEntry& entry : files.list()) {
      const auto parsed = parse_dcp_name(entry.name);
      if (parsed && parsed->save == save) names.push_back(entry.name);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
  } catch (const Error&) {
    // What it was cannot be read any more; its files stay.
  }
  return names;
}

std::vector<std::string> torch_files_of(const FileSystem& files, const std::string& metadata) {
  std::vector<std::string> names = files_of(files, metadata);
  std::erase_if(names, [](const std::string& name) { return !is_torchs(name); });
  return names;
}

// Also as a link, which is not followed here, but where it is read.
bool is_there(const FileSystem& files, std::string_view name) {
  return files.version_of(name) || files.stat(name);
}

// Who cleans up may have taken files that nobody named yet: where no lock kept others out any of them, and
// elsewhere those that carry the id of a save, which ranks that save for themselves take for their own.
void require_files(const FileSystem& now, const Metadata& metadata, bool exclusive) {
  const std::shared_ptr<const FileSystem> seen = now.as_of_now();
  const FileSystem& files = seen ? *seen : now;
  SetOfNames<std::string> there;
  for (const FileEntry& entry : files.list()) there.insert(entry.name);
  for (const std::string& name : metadata.storage_data.files()) {
    // Not everything can be listed everywhere, nor what lies deeper.
    if (there.contains(name) || name.find('/') != name.npos) continue;
    const auto parsed = parse_dcp_name(name);
    if ((exclusive && !(parsed && parsed->save)) || files.stat(name)) continue;
    throw Error(ErrorCode::kConflict, "the file has been removed before the save was done")
        .in_file(files.root() + "/" + name);
  }
}

bool holds(const FileSystem& files, const std::string& name, std::string_view bytes) {
  const auto source = files.open(name);
  return source->size() == bytes.size() && read_all(*source) == bytes;
}

// Removes the metadata of single ranks, which a checkpoint of all ranks together has replaced, and what
// torch's files they named; the rest of theirs is debris from then on. False, and nothing done, while one of
// these ranks is saving again.
bool retire_ranks(FileSystem& files, const std::vector<FileEntry>& all, bool durable) {
  const std::vector<std::string> retired = rank_metadata_in(all);
  std::vector<std::unique_ptr<FileLock>> locks;
  std::vector<std::string> old;
  try {
    for (const FileEntry& entry : all) {
      const auto parsed = parse_dcp_name(entry.name);
      if (parsed && parsed->kind == DcpName::Kind::kLock && parsed->rank && !is_partial(entry.name))
        locks.push_back(files.lock(entry.name));
    }
    for (const std::string& name : retired) {
      const std::string lock = lock_name(parse_dcp_name(name)->rank);
      const bool held = std::any_of(all.begin(), all.end(), [&](const auto& e) { return e.name == lock; });
      if (!held) locks.push_back(files.lock(lock));
    }
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kConflict) return false;
    throw;
  }
  // One that could be taken, but may be held on another machine, counts as held.
  if (!std::all_of(locks.begin(), locks.end(), [](const auto& lock) { return lock->is_exclusive(); }))
    return false;
  for (const std::string& name : retired)
    for (std::string& file : torch_files_of(files, name)) old.push_back(std::move(file));
  if (retired.empty()) return true;
  files.remove_all(retired);
  if (durable) files.sync_directory();
  const Metadata now = read_dcp_metadata(*files.open(kMetadataName));
  LiveFiles live;
  live.add(now);
  std::erase_if(old, [&](const std::string& name) { return live.has_file(name); });
  files.remove_all(old);
  return true;
}

// What was listed may be gone when it is looked into: other ranks and other jobs rename and remove. Whoever
// lists again sees what they did.
template <class Look> auto look_again(const FileSystem& files, const std::string& metadata, Look&& look) {
  for (int tries = 1;; ++tries) {
    try {
      return look();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) throw;
      if (tries == kMostLooks) throw another_save_came_first(files, metadata);
    }
  }
}

std::string nothing_keeps_apart(const FileSystem& files) {
  return fmt::format(
      "{}: nothing here keeps two jobs apart that save under one id at the same time: of two such saves that "
      "both report success, one is gone",
      files.root());
}

}  // namespace

Publication::Publication(FileSystem& files, const SaveId& save, const WriteOptions& options,
                         std::optional<int> rank, int ranks, const SaveId& attempt)
    : files_(files),
      save_(save),
      options_(options),
      rank_(rank),
      ranks_(ranks),
      attempt_(attempt),
      lock_(files.lock(lock_name(rank))) {
  CAIRN_POINT("publish.locked");
  if (rank)
    look_again(files, metadata_name(rank), [&] { complete_any_set(files, options.durable, options.limits); });
  if (!options.overwrite) require_replaceable();
  version_ = files.version_of(metadata_name(rank));
  replaces_ = version_ || files.stat(metadata_name(rank));
  if (replaces_) remember_torch_files();
}

// Whichever way it was saved, a checkpoint in this place would be gone in the end. An empty file is none: a
// save died that had taken the name.
void Publication::require_replaceable() const {
  const auto is_checkpoint = [&](std::string_view name) {
    const auto entry = files_.stat(name);
    return entry ? entry->size > 0 : is_there(files_, name);
  };
  bool there = is_checkpoint(metadata_name(rank_)) || is_checkpoint(kMetadataName);
  if (!rank_ && !there) there = !rank_metadata_in(files_.list()).empty();
  if (!there) return;
  throw Error(ErrorCode::kConflict,
              "Checkpoint already exists, and overwriting is off: save under another id")
      .in_file(files_.root());
}

// A checkpoint of torch's has data files whose names do not say whose they are; its metadata does.
void Publication::remember_torch_files() {
  const std::vector<FileEntry> all = files_.list();
  if (std::any_of(all.begin(), all.end(), [](const FileEntry& entry) { return is_torchs(entry.name); }))
    torch_files_ = torch_files_of(files_, metadata_name(rank_));
}

// All files of the checkpoint that is replaced, from its metadata, which will not be there much longer.
void Publication::remember_replaced() { replaced_ = files_of(files_, metadata_name(rank_)); }

void Publication::describe(Metadata& metadata) const {
  metadata.version = kDcpVersion;
  StorageMeta meta = metadata.storage_meta.value_or(StorageMeta());
  if (!meta.checkpoint_id) meta.checkpoint_id = to_utf8(files_.root());
  meta.save_id = to_string(save_);
  meta.has_modules = true;
  if (options_.checksums) meta.extra.set(std::string(kManifestKey), Value(manifest_name(save_, rank_)));
  if (rank_) note_rank_set(meta, next_.set);
  metadata.storage_meta = std::move(meta);
}

// Another save may have come and gone meanwhile.
void Publication::require_unchanged() const {
  if (files_.version_of(metadata_name(rank_)) != version_)
    throw another_save_came_first(files_, metadata_name(rank_));
}

// When it returns, the new checkpoint is the one that everybody sees, by one step of the file system. Locks
// may end at the machine: another job can have published under this id since this save began, or be about to.
// What the file system can do decides how that is found out.
void Publication::write_metadata(const std::string& name, std::string_view bytes,
                                 std::chrono::steady_clock::time_point deadline,
                                 std::vector<std::string>& warnings) {
  if (next_.beside) {
    if (!lock_->is_exclusive()) warnings.push_back(nothing_keeps_apart(files_));
    return write_file(files_, name_beside(*rank_, next_.set), bytes,
                      {.replace = true, .durable = options_.durable});
  }
  const Capabilities can = files_.capabilities();
  const bool claims = replaces_ && version_ && can.exclusive_create && can.atomic_rename;
  CreateOptions how{.replace = replaces_, .durable = options_.durable};
  if (replaces_ && version_ && can.replace_if_unchanged) {
    how.expected = version_;
  } else if (claims) {
    return replace_by_claim(files_,
                            {save_, rank_, bytes, *version_, options_.durable, lock_.get(), deadline});
  } else if (replaces_ || !can.exclusive_create) {
    require_unchanged();
    how.replace = true;
    warnings.push_back(nothing_keeps_apart(files_) +
                       (can.atomic_rename ? "" : "; and whether a file is renamed in one step nobody knows"));
  }
  try {
    write_file(files_, name, bytes, how);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kConflict) throw another_save_came_first(files_, name);
    throw;
  }
}

void Publication::publish(Metadata& metadata, std::vector<ManifestFile> written,
                          std::chrono::steady_clock::time_point deadline,
                          std::vector<std::string>& warnings) {
  const std::string name = metadata_name(rank_);
  const auto next = [&] { return next_set(files_, files_.list(), ranks_, attempt_, options_.limits); };
  if (rank_) next_ = look_again(files_, name, next);
  describe(metadata);
  const std::string bytes = encode_dcp_metadata(metadata, options_.limits);
  CAIRN_POINT("publish.before_manifest");
  if (options_.checksums) {
    written.push_back(sums_of(name, bytes, options_.strong_hashes));
    const std::string manifest = encode_manifest(save_, options_.strong_hashes, written);
    write_file(files_, manifest_name(save_, rank_), manifest,
               {.durable = options_.durable, .in_place = true});
    CAIRN_POINT("publish.after_manifest");
    if (options_.durable) files_.sync_directory();
  }
  const bool exclusive = lock_->is_exclusive();
  if (!exclusive && replaces_ && version_) remember_replaced();
  require_files(files_, metadata, exclusive);
  CAIRN_POINT("publish.before_deadline_check");
  check_deadline(deadline);
  CAIRN_POINT("publish.before_metadata");
  write_metadata(name, bytes, deadline, warnings);
  CAIRN_POINT("publish.after_metadata");
  if (options_.durable) files_.sync_directory();
  CAIRN_POINT("publish.metadata_durable");
  if (rank_) require_coming();
  remove_old_files(bytes, metadata);
  lock_.reset();
}

// What this rank has here that others may look at: what loads, and what waits for the other ranks.
void Publication::add_own_metadata(LiveFiles& live) const {
  const std::string beside = name_beside(*rank_, next_.set);
  for (const std::string& name : metadata_of_rank(files_.list(), *rank_)) {
    if (name != metadata_name(rank_) && name != beside) continue;  // of a set that this one comes after
    live.add_file(name);
    live.add(read_dcp_metadata(*files_.open(name)));
  }
}

// The saves that this rank made for itself: with a manifest of its own.
std::set<SaveId> Publication::own_saves(const std::vector<FileEntry>& all) const {
  std::set<SaveId> own{save_};
  for (const FileEntry& entry : all) {
    const auto parsed = parse_dcp_name(entry.name);
    if (parsed && parsed->kind == DcpName::Kind::kManifest && parsed->rank == rank_ &&
        !is_partial(entry.name))
      own.insert(*parsed->save);
  }
  return own;
}

// Data that this rank wrote may be that of a save of all ranks, which does not hold this rank's lock, but
// that of all.
bool Publication::is_foreign_data(const FileEntry& entry, const std::set<SaveId>& own) const {
  const auto parsed = parse_dcp_name(entry.name);
  return rank_ && parsed && parsed->kind == DcpName::Kind::kData && parsed->rank == rank_ &&
         !(parsed->save && own.contains(*parsed->save));
}

std::vector<std::string> Publication::files_to_remove(const std::vector<FileEntry>& all,
                                                      const Metadata& metadata, bool exclusive) {
  // What a save of all ranks wrote is dead, or named by .metadata, once its lock can be had. Ranks that clean
  // up all want it.
  const std::set<SaveId> own = own_saves(all);
  const auto is_foreign = [&](const FileEntry& entry) { return is_foreign_data(entry, own); };
  const bool looks = exclusive && std::any_of(all.begin(), all.end(), is_foreign);
  const auto of_all = looks ? lock_soon(files_, lock_name()) : nullptr;
  LiveFiles live;
  live.add(metadata);  // a writer of the user's may have written the new data under the names of the old
  live.add_save(save_);
  // Until every rank has published its own, the checkpoint before it is the one that loads.
  if (rank_ && is_there(files_, kMetadataName)) live.add(read_dcp_metadata(*files_.open(kMetadataName)));
  if (rank_) add_own_metadata(live);
  std::vector<std::string> old = std::move(exclusive ? torch_files_ : replaced_);
  if (exclusive)
    for (FileEntry& entry : find_debris(all, live, rank_))
      if (!is_foreign(entry) || (of_all && of_all->is_exclusive())) old.push_back(std::move(entry.name));
  std::erase_if(old, [&](const std::string& name) {
    const auto parsed = parse_dcp_name(name);
    return live.has_file(name) || (parsed && parsed->save && live.has_save(*parsed->save));
  });
  return old;
}

// The new checkpoint is there: whatever fails now is somebody else's to clean up.
void Publication::remove_old_files(std::string_view published, const Metadata& metadata) noexcept {
  try {
    // In this order: whoever comes after the second line has no file in the first's list.
    const std::vector<FileEntry> all = files_.list();
    const bool exclusive = lock_->is_exclusive();
    if (!published.empty() && !next_.beside && !holds(files_, metadata_name(rank_), published)) return;
    if (!rank_ && exclusive && !retire_ranks(files_, all, options_.durable)) return;
    const std::vector<std::string> old = files_to_remove(all, metadata, exclusive);
    CAIRN_POINT("publish.before_remove");
    files_.remove_all(old);
    CAIRN_POINT("publish.after_remove");
    if (!old.empty() && options_.durable) files_.sync_directory();
    CAIRN_POINT("publish.before_unlock");
  } catch (...) {
    // The next save or `cairn gc` finds them.
  }
}

// What this rank published is beside another checkpoint until the other ranks are there. That checkpoint may
// have been replaced by a third one meanwhile: then nobody would ever see it.
void Publication::require_coming() {
  for (int tries = 1; !is_coming(); ++tries) {
    if (tries < kMostLooks) continue;
    if (next_.beside) files_.remove_all(std::vector{name_beside(*rank_, next_.set)});
    throw another_save_came_first(files_, metadata_name(rank_));
  }
}

bool Publication::is_coming() try {
  if (complete_set(files_, next_.set, options_.durable, options_.limits)) return true;
  if (next_set(files_, files_.list(), ranks_, attempt_, options_.limits).set == next_.set) return true;
  return is_complete(next_.set, files_, files_.list(), options_.limits);  // just now
} catch (const Error& e) {
  if (e.code() != ErrorCode::kNotFound) throw;
  return false;  // another rank completes the set: what was listed has another name, or is retired
}

bool Publication::stands() {
  return !rank_ || complete_set(files_, next_.set, options_.durable, options_.limits, kPatience);
}

void Publication::complete() {
  if (stands()) {
    // What stands because another rank made it stand may not be durable yet.
    if (rank_ && options_.durable) files_.sync_directory();
    return;
  }
  throw Error(
      ErrorCode::kConflict,
      "every rank has saved, and yet this checkpoint is not the one that loads: another save is under "
      "way under this id, or came in between")
      .in_file(files_.root());
}

bool is_published_by(const FileSystem& files, const SaveId& save, std::optional<int> rank) {
  std::vector<std::string> names;
  if (!rank && files.stat(kMetadataName)) names.emplace_back(kMetadataName);
  if (rank) names = metadata_of_rank(files.list(), *rank);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const Metadata metadata = read_dcp_metadata(*files.open(name));
    return metadata.storage_meta && metadata.storage_meta->save_id == to_string(save);
  });
}

}  // namespace cairn
