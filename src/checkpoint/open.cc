// Finds out what a path is, and the parts of Checkpoint that all formats share.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/bytes.h"
#include "base/current_error.h"
#include "base/name_table.h"
#include "base/near_names.h"
#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "checkpoint/dcp_checkpoint.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/formats.h"
#include "checkpoint/rank_sets.h"
#include "checkpoint/seen_now.h"

namespace cairn {
namespace {

bool has_file(const std::vector<FileEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& e) { return e.name == name; });
}

bool has_ending(const std::vector<FileEntry>& entries, std::string_view ending) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& e) {
    return e.kind != FileEntry::Kind::kFolder && e.name.ends_with(ending);
  });
}

// "__0.metadata", "__1.metadata", ... in rank order.
std::vector<std::string> rank_local_metadata(const FileSystem& folder, const std::vector<FileEntry>& entries,
                                             const Limits& limits) {
  std::vector<std::string> names;
  for (auto& [rank, name] : standing_ranks(folder, entries, limits).parts) names.push_back(name);
  return names;
}

bool has_metadata(const FileSystem& folder, const std::string& beneath) {
  try {
    return folder.enter(beneath)->stat(kMetadataName).has_value();
  } catch (const Error&) {
    return false;  // this is only advice
  }
}

// ", but these in it do: 'step-10', 'step-20'": people often name the folder above.
std::string checkpoints_below(const FileSystem& folder, const std::vector<FileEntry>& entries) {
  constexpr std::size_t kMostLookedAt = 200, kMostNamed = 3;
  std::string names;
  std::size_t looked_at = 0, named = 0;
  for (const FileEntry& entry : entries) {
    if (entry.kind != FileEntry::Kind::kFolder || ++looked_at > kMostLookedAt) continue;
    if (!has_metadata(folder, entry.name) || ++named > kMostNamed) continue;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", entry.name);
  }
  return names.empty() ? "" : fmt::format("; beneath it there is one in {}", names);
}

[[noreturn]] void fail_unfinished(const FileSystem& folder) {
  throw Error(
      ErrorCode::kNotFound,
      "there are .distcp files here, but neither .metadata nor a rank's own __N.metadata: the save is still "
      "running, or it was stopped before it finished")
      .in_file(folder.root());
}

std::unique_ptr<StoredCheckpoint> open_folder(const std::shared_ptr<const FileSystem>& folder,
                                              const Limits& limits,
                                              const std::shared_ptr<SourceChecks>& checks) {
  // A checkpoint may have ten thousand files; .metadata is looked for before they are listed.
  if (folder->stat(kMetadataName) || folder->version_of(kMetadataName))
    return open_dcp(folder, {std::string(kMetadataName)}, limits, checks);
  const std::vector<FileEntry> entries = folder->entries();
  if (has_file(entries, kMetadataName)) return open_dcp(folder, {std::string(kMetadataName)}, limits, checks);
  const std::vector<std::string> rank_local = rank_local_metadata(*folder, entries, limits);
  if (!rank_local.empty()) return open_dcp(folder, rank_local, limits, checks);
  if (has_file(entries, kIndexFile) || has_ending(entries, ".safetensors"))
    return open_hugging_face(folder, limits);
  if (has_ending(entries, ".distcp")) fail_unfinished(*folder);
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format(
          "no checkpoint in this directory: looked for .metadata, __N.metadata, {} and *.safetensors{}",
          kIndexFile, checkpoints_below(*folder, entries)))
      .in_file(folder->root());
}

// The old torch formats, which TorchFile refuses with advice: a bare pickle, or a tar archive.
bool looks_like_legacy_torch(std::string_view head) {
  const bool pickle = head.size() > 1 && head[0] == '\x80' && head[1] > 0 && head[1] < 6;
  return pickle || (head.size() >= 262 && head.substr(257, 5) == "ustar");
}

std::unique_ptr<StoredCheckpoint> open_single_file(const FileSystem& folder, const std::string& name,
                                                   const Limits& limits,
                                                   const std::shared_ptr<SourceChecks>& checks) {
  const std::shared_ptr<const ByteSource> source = folder.open(name);
  std::string head(std::min<std::uint64_t>(source->size(), 512), '\0');
  source->read_at(0, std::as_writable_bytes(std::span(head)));
  if (name.ends_with(".distcp")) {
    throw Error(ErrorCode::kUnsupported, "this is one data file of a DCP checkpoint; open its directory")
        .in_file(source->name());
  }
  // First, because the length may look like the beginning of a pickle (0x80 and a protocol's number). No
  // pickle looks like a length that fits the file.
  if (head.size() > 8 && head[8] == '{' && load<std::uint64_t>(head.data()) <= source->size() - 8)
    return open_safetensors(source, limits);
  if (head.starts_with("PK\3\4") || looks_like_legacy_torch(head))
    return open_torch_checkpoint(source, limits, checks);
  throw Error(
      ErrorCode::kUnsupported,
      "neither a torch.save archive (begins with PK) nor a safetensors file (a length, then a JSON header)")
      .in_file(source->name());
}

bool is_metadata_name(std::string_view name) {
  return name == kMetadataName || name == kIndexFile || (rank_in_name(name) && name.ends_with(".metadata"));
}

}  // namespace

// Made on first use: most callers never look anything up by name.
struct Checkpoint::Names {
  std::once_flag once;
  NameTable table;  // names are unique, so a name's number is its position
};

Checkpoint::Checkpoint() : names_(std::make_shared<Names>()) {}

std::string_view name_of(Format format) {
  switch (format) {
    case Format::kDcp: return "dcp";
    case Format::kTorchFile: return "torch";
    case Format::kSafetensors: return "safetensors";
    case Format::kHuggingFace: return "huggingface";
  }
  return "unknown";
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::unique_ptr<StoredCheckpoint> open_place(const Place& place, const Limits& limits,
                                             const std::shared_ptr<SourceChecks>& checks) {
  if (place.is_folder() || is_metadata_name(place.name))
    return open_folder(seen_now(place.files), limits, checks);
  return open_single_file(*place.files, place.name, limits, checks);
}

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& url, const Limits& limits) {
  return with_typed_errors([&] { return open_checkpoint(url, limits, nullptr); });
}

std::unique_ptr<Checkpoint> Checkpoint::open(std::shared_ptr<FileSystem> files, const std::string& name,
                                             const Limits& limits) {
  return with_typed_errors([&] {
    Place place{files, name};
    if (!name.empty() && !files->stat(name)) {
      try {
        place = {files->enter(name), ""};
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kNotFound) throw;  // opening it as a file says what it is
      }
    }
    return open_place(place, limits, nullptr);
  });
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(const std::string& url, const Limits& limits,
                                                  const std::shared_ptr<SourceChecks>& checks) {
  const Place place = find_place(url, kForReading);
  if (place.files == nullptr) throw Error(ErrorCode::kNotFound, "no such file or directory").in_file(url);
  return open_place(place, limits, checks);
}

Tensor Checkpoint::read(std::string_view tensor, const Selection& selection) const {
  if (const auto position = find_tensor(tensor)) return read_at(*position, selection);
  std::string why = why_missing(tensor);
  if (why.empty()) {
    for (const ObjectSummary& object : objects()) {
      if (object.name != tensor) continue;
      throw Error(ErrorCode::kInvalidArgument, "this is an object, not a tensor").of_tensor(tensor);
    }
    const auto& all = tensors();
    why = "no such tensor" +
          did_you_mean(near_names(tensor, all.size(), [&](std::size_t i) { return all[i].name; }));
  }
  throw Error(ErrorCode::kNotFound, why).of_tensor(tensor);
}

std::optional<std::size_t> Checkpoint::find_tensor(std::string_view name) const {
  std::call_once(names_->once, [this] {
    for (const TensorSummary& tensor : tensors()) names_->table.intern(tensor.name);
  });
  return names_->table.find(name);
}

void Checkpoint::fail_to_find_object(std::string_view name) const {
  if (find_tensor(name)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is a tensor, not an object", name));
  }
  const auto& all = objects();
  const auto near = near_names(name, all.size(), [&](std::size_t i) { return all[i].name; });
  throw Error(ErrorCode::kNotFound, fmt::format("no object '{}'{}", name, did_you_mean(near)));
}

}  // namespace cairn
