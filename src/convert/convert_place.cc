#include "convert/convert_place.h"

#include <algorithm>

#include "base/trial.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "checkpoint/formats.h"

namespace cairn {
namespace {

bool is_folder_format(Format format) { return format == Format::kDcp || format == Format::kHuggingFace; }

[[noreturn]] void fail_there(const std::string& url) {
  throw Error(ErrorCode::kConflict,
              "is there already: choose another destination, or overwrite it (--overwrite)")
      .in_file(url);
}

// A model's folder may hold other things, like a tokenizer.
bool has_model(const std::vector<FileEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const FileEntry& entry) {
    return entry.name == kIndexFile || entry.name == kMetadataName || entry.name.ends_with(".safetensors");
  });
}

void require_free(const Place& there, const std::string& url, Format format, const ConvertOptions& options) {
  if (there.files == nullptr) return;
  if (there.is_folder() != is_folder_format(format)) {
    throw Error(ErrorCode::kConflict, there.is_folder() ? "is a directory, and a file is to be written"
                                                        : "is a file, and a directory is to be written")
        .in_file(url);
  }
  if (options.overwrite) return;
  if (!there.is_folder()) fail_there(url);
  const std::vector<FileEntry> entries = there.files->entries();
  // Those who share a model's folder see to their own files.
  const bool free =
      format == Format::kHuggingFace ? options.only_files || !has_model(entries) : entries.empty();
  if (!free) fail_there(url);
}

bool is_same(const Place& a, const Place& b) {
  if (a.files == nullptr || b.files == nullptr || a.is_folder() != b.is_folder()) return false;
  if (a.is_folder()) return a.files->identity() == b.files->identity();
  const auto version = a.files->version_of(a.name);
  return version && version == b.files->version_of(b.name);
}

}  // namespace

ConvertPlace::ConvertPlace(const std::string& source, const std::string& destination, Format format,
                           const ConvertOptions& options) {
  if (destination.empty()) throw Error(ErrorCode::kInvalidArgument, "the destination has no name");
  const Place there = find_place(destination, kForReading);
  if (is_same(find_place(source, kForReading), there))
    throw Error(ErrorCode::kInvalidArgument, "the destination is the source").in_file(destination);
  require_free(there, destination, format, options);
  folder_ = destination;
  if (is_folder_format(format)) return;
  UrlParts parts = split_url(destination);
  folder_ = std::move(parts.folder);
  file_name_ = std::move(parts.name);
}

const std::shared_ptr<FileSystem>& ConvertPlace::files() {
  if (files_ != nullptr) return files_;
  std::unique_ptr<FileSystem> made = file_system_of(folder_, {.create = true});
  try {
    files_ = std::move(made);
  } catch (...) {  // no memory for the reference count
    made->remove_made_folders();
    throw;
  }
  CAIRN_POINT("convert.place_made");
  return files_;
}

ConvertPlace::~ConvertPlace() {
  // Folders that were made here go, unless somebody else uses them by now.
  if (!keep_ && files_ != nullptr) files_->remove_made_folders();
}

}  // namespace cairn
