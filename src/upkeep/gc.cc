#include "cairn/gc.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/current_error.h"
#include "base/source.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/rank_sets.h"
#include "format/dcp_metadata.h"
#include "save/debris.h"
#include "save/rank_publish.h"
#include "storage/write_file.h"

namespace cairn {
namespace {

// Metadata of a rank that waits for others still may be of use, if it is to replace what stands now.
bool is_coming(const DcpName& name, const FileSystem& files, const std::vector<FileEntry>& entries,
               const Limits& limits) {
  if (name.kind != DcpName::Kind::kNextMetadata) return false;
  return next_set(files, entries, name.number, name.attempt, limits).set ==
         RankSet{name.found, name.number, name.attempt};
}

// With `marks` an empty description of all ranks is a mark that make_another() has left; otherwise it is one
// that cannot be read.
LiveFiles live_files(const FileSystem& files, const std::vector<FileEntry>& entries, const Limits& limits,
                     bool marks) {
  LiveFiles live;
  for (const FileEntry& entry : entries) {
    const auto name = parse_dcp_name(entry.name);
    if (!name || is_partial(entry.name)) continue;
    if (name->kind != DcpName::Kind::kMetadata && !is_coming(*name, files, entries, limits)) continue;
    if (marks && !name->rank && entry.size == 0) continue;
    try {
      live.add_file(entry.name);
      const Metadata metadata = read_dcp_metadata(*files.open(entry.name), limits);
      if (!metadata.foreign_storage_data.is<None>())
        throw Error(ErrorCode::kUnsupported, "was written by a storage of somebody's own");
      live.add(metadata);
    } catch (Error& e) {
      e.in_file(files.root() + "/" + entry.name);
      e.while_doing("finding out which files are in use (nothing was removed)");
      throw;
    }
  }
  return live;
}

// Whether saves that are alive are known, and dead ones that wake up are told.
bool knows_the_living(const FileSystem& files, const FileLock& lock) {
  const Capabilities can = files.capabilities();
  return lock.renewed() && can.exclusive_create && can.replace_if_unchanged && can.modification_times;
}

void require_alone(const FileSystem& files, const FileLock& lock) {
  if (lock.is_alone()) return;
  throw Error(
      ErrorCode::kConflict,
      "a save is under way here, or one has died so lately that it may still be alive: nothing was removed")
      .in_file(files.root());
}

// A rank that saves for itself holds a lock of its own; what is listed under its plain name is alive.
void require_no_rank(const FileSystem& files) {
  for (const FileEntry& entry : files.list()) {
    const auto name = parse_dcp_name(entry.name);
    if (!name || name->kind != DcpName::Kind::kLock || !name->rank || is_partial(entry.name)) continue;
    throw Error(ErrorCode::kConflict, "a rank is saving here, or has died lately: nothing was removed")
        .in_file(files.root() + "/" + entry.name);
  }
}

// Who publishes compares the checkpoint with the one that was there when he began: so it becomes another one.
void make_another(FileSystem& files) {
  const auto version = files.version_of(kMetadataName);
  const std::string bytes = version ? read_all(*files.open(kMetadataName)) : "";
  write_file(files, kMetadataName, bytes, {.replace = version.has_value(), .expected = version});
}

void remove_what_is_in(GcReport& report, FileSystem& files, const GcOptions& options) {
  std::vector<std::string> names;
  for (const FileEntry& file : report.files) {
    report.bytes += file.size;
    names.push_back(file.name);
  }
  if (!options.dry_run) files.remove_all(names);
}

// Where locks keep nobody out, but holders are known: files that are old enough and nobody's.
GcReport collect_what_is_old(FileSystem& files, const FileLock& lock, const GcOptions& options) {
  require_alone(files, lock);
  require_no_rank(files);
  const auto debris = [&] {
    const std::vector<FileEntry> all = files.list();
    std::vector<FileEntry> found = find_debris(all, live_files(files, all, options.limits, true));
    std::erase_if(found, [&](const FileEntry& entry) {
      const auto modified = files.modified(entry.name);
      return !modified || *modified + options.age > *lock.renewed();
    });
    return found;
  };
  GcReport report{debris(), 0};
  if (!report.files.empty() && !options.dry_run) {
    make_another(files);
    report.files = debris();
  }
  remove_what_is_in(report, files, options);
  return report;
}

void require_exclusive(const FileSystem& files, const FileLock& lock, const GcOptions& options) {
  if (lock.is_exclusive() || options.dry_run || options.force) return;
  throw Error(ErrorCode::kUnsupported,
              "the lock keeps nobody out here: the file system has no locks, or none that reach other "
              "machines, or somebody has removed this one. Make sure that no save is under way here, and use "
              "force")
      .in_file(files.root());
}

// Gives it back. Whoever is named there is dead, where the caller has said so.
void clear(FileSystem& files, std::string_view name, std::unique_ptr<FileLock> lock,
           const GcOptions& options) {
  const bool stays = !lock->is_exclusive();
  lock.reset();
  if (stays && options.force && !options.dry_run && files.stat(name)) files.remove(name);
}

// Rank-local saves hold a lock for each rank. Taking it shows that its holder is dead, and giving it back
// removes it.
void clear_rank_locks(FileSystem& files, const std::vector<FileEntry>& entries, const GcOptions& options) {
  for (const FileEntry& entry : entries) {
    const auto name = parse_dcp_name(entry.name);
    if (!name || name->kind != DcpName::Kind::kLock || !name->rank || is_partial(entry.name)) continue;
    auto lock = files.lock(entry.name);
    require_exclusive(files, *lock, options);
    clear(files, entry.name, std::move(lock), options);
  }
}

// A save that starts while this runs is safe without knowing of it: only files of the first listing go, and
// whoever wrote those had his lock in it, or is dead.
GcReport collect(FileSystem& files, const GcOptions& options) {
  auto lock = files.lock(lock_name());
  const bool marks = knows_the_living(files, *lock);
  if (!options.force && marks) return collect_what_is_old(files, *lock, options);
  require_exclusive(files, *lock, options);
  CAIRN_POINT("gc.locked");
  const std::vector<FileEntry> before = files.list();
  clear_rank_locks(files, before, options);
  if (!options.dry_run) complete_any_set(files, true, options.limits);
  CAIRN_POINT("gc.listed");
  const LiveFiles live = live_files(files, files.list(), options.limits, marks);
  GcReport report{find_debris(before, live), 0};
  CAIRN_POINT("gc.before_remove");
  remove_what_is_in(report, files, options);
  CAIRN_POINT("gc.after_remove");
  if (!options.dry_run && !report.files.empty()) files.sync_directory();
  CAIRN_POINT("gc.before_unlock");
  clear(files, kLockName, std::move(lock), options);
  return report;
}

}  // namespace

GcReport gc(FileSystem& files, const GcOptions& options) {
  return with_typed_errors([&] { return collect(files, options); });
}

GcReport gc(const std::string& url, const GcOptions& options) {
  // A link that stands for metadata is read by a load: what it names is in use.
  return with_typed_errors([&] { return collect(*file_system_of(url, {.follow_links = true}), options); });
}

}  // namespace cairn
