#include "storage/publish.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sink.h"
#include "base/source.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "format/dcp_metadata.h"
#include "storage/dcp_names.h"
#include "storage/debris.h"

namespace cairn {
namespace {

constexpr std::string_view kDcpVersion = "1.0.0";
constexpr std::string_view kManifestKey = "cairn_manifest";

std::string encode(const Metadata& metadata) {
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  return std::move(sink.text);
}

ManifestFile sums_of(std::string name, std::string_view bytes, bool strong) {
  ChecksumStream sums(strong);
  sums.append(as_bytes(bytes));
  return sums.finish(std::move(name));
}

void check_deadline(std::chrono::steady_clock::time_point deadline) {
  if (std::chrono::steady_clock::now() <= deadline || CAIRN_BUG("publish-too-late")) return;
  // The other ranks have given up, and somebody may be saving again.
  throw Error(ErrorCode::kTimeout, "the save's deadline passed before it could be published");
}

}  // namespace

Publication::Publication(FileSystem& files, const SaveId& save, const WriteOptions& options,
                         std::optional<int> rank)
    : files_(files), save_(save), options_(options), rank_(rank), lock_(files.lock(lock_name(rank))) {
  CAIRN_POINT("publish.locked");
  if (!files.stat(metadata_name(rank))) return;
  if (!options.overwrite) {
    throw Error(ErrorCode::kConflict,
                "Checkpoint already exists, and overwriting is off: save under another id")
        .in_file(files.root());
  }
  remember_old_files();
}

// A checkpoint of torch's has data files whose names do not say whose they are; its metadata does.
void Publication::remember_old_files() {
  const std::vector<FileEntry> all = files_.list();
  const bool torch_wrote = std::any_of(all.begin(), all.end(), [](const FileEntry& entry) {
    const auto parsed = parse_dcp_name(entry.name);
    return parsed && parsed->kind == DcpName::Kind::kData && !parsed->save;
  });
  if (!torch_wrote) return;
  try {
    const Metadata old = read_dcp_metadata(*files_.open(metadata_name(rank_)));
    for (const std::string& name : old.storage_data.files()) {
      const auto parsed = parse_dcp_name(name);
      if (parsed && parsed->kind == DcpName::Kind::kData && !parsed->save) torch_files_.push_back(name);
    }
  } catch (const Error&) {
    // What it was cannot be read any more; its files stay.
  }
}

void Publication::describe(Metadata& metadata) const {
  metadata.version = kDcpVersion;
  StorageMeta meta = metadata.storage_meta.value_or(StorageMeta());
  if (!meta.checkpoint_id) meta.checkpoint_id = files_.root();
  meta.save_id = to_string(save_);
  meta.has_modules = true;
  if (options_.checksums) meta.extra.set(std::string(kManifestKey), Value(manifest_name(save_, rank_)));
  metadata.storage_meta = std::move(meta);
}

void Publication::write(const std::string& name, std::string_view bytes, bool replace) {
  const auto file =
      files_.create(name, {.size = bytes.size(), .replace = replace, .durable = options_.durable});
  file->write_at(0, as_bytes(bytes));
  file->commit();
}

void Publication::publish(Metadata& metadata, std::vector<ManifestFile> written,
                          std::chrono::steady_clock::time_point deadline) {
  describe(metadata);
  const std::string name = metadata_name(rank_);
  const std::string bytes = encode(metadata);
  CAIRN_POINT("publish.before_manifest");
  if (options_.checksums) {
    written.push_back(sums_of(name, bytes, options_.strong_hashes));
    write(manifest_name(save_, rank_), encode_manifest(save_, options_.strong_hashes, written),
          CAIRN_BUG("reuse-file-names"));
    CAIRN_POINT("publish.after_manifest");
    if (options_.durable) files_.sync_directory();
  }
  CAIRN_POINT("publish.before_deadline_check");
  check_deadline(deadline);
  if (CAIRN_BUG("remove-old-first")) remove_old_files(metadata);
  if (CAIRN_BUG("unlink-then-rename") && files_.stat(name)) files_.remove(name);
  CAIRN_POINT("publish.before_metadata");
  write(name, bytes, options_.overwrite);
  CAIRN_POINT("publish.after_metadata");
  if (options_.durable) files_.sync_directory();
  CAIRN_POINT("publish.metadata_durable");
  remove_old_files(metadata);
  lock_.reset();
}

// The new checkpoint is there: whatever fails now is somebody else's to clean up.
void Publication::remove_old_files(const Metadata& published) noexcept {
  try {
    if (!lock_->is_exclusive()) return;
    LiveFiles live;
    live.add(published);
    live.add_save(save_);
    // A writer of the user's may have written the new data under the names of the old.
    std::vector<std::string> old = std::move(torch_files_);
    std::erase_if(old, [&](const std::string& name) { return live.has_file(name); });
    const std::vector<FileEntry> all = files_.list();
    // Metadata of single ranks may stand for files that this save knows nothing of.
    const bool mixed = !rank_ && std::any_of(all.begin(), all.end(), [](const FileEntry& entry) {
      const auto parsed = parse_dcp_name(entry.name);
      return parsed && parsed->kind == DcpName::Kind::kMetadata && parsed->rank;
    });
    if (!mixed)
      for (FileEntry& entry : find_debris(all, live, rank_)) old.push_back(std::move(entry.name));
    CAIRN_POINT("publish.before_remove");
    for (const std::string& name : old) files_.remove(name);
    CAIRN_POINT("publish.after_remove");
    if (!old.empty() && options_.durable) files_.sync_directory();
    CAIRN_POINT("publish.before_unlock");
  } catch (...) {
    // The next save or `cairn gc` finds them.
  }
}

bool is_published_by(const FileSystem& files, const SaveId& save, std::optional<int> rank) {
  const std::string name = metadata_name(rank);
  if (!files.stat(name)) return false;
  const Metadata metadata = read_dcp_metadata(*files.open(name));
  return metadata.storage_meta && metadata.storage_meta->save_id == to_string(save);
}

}  // namespace cairn
