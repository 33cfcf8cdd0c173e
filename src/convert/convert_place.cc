#include "convert/convert_place.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/trial.h"
#include "cairn/error.h"
#include "checkpoint/formats.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

bool is_directory_format(Format format) { return format == Format::kDcp || format == Format::kHuggingFace; }

[[noreturn]] void fail_there(const std::string& path) {
  throw Error(ErrorCode::kConflict,
              "is there already: choose another destination, or overwrite it (--overwrite)")
      .in_file(path);
}

// A model's directory may hold other things, like a tokenizer.
bool has_model(const fs::path& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == kIndexFile || name == kMetadataFile || name.ends_with(".safetensors")) return true;
  }
  return false;
}

void require_free(const fs::path& path, Format format, const ConvertOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::not_found) return;
  const bool directory = fs::is_directory(path, error);
  if (directory != is_directory_format(format)) {
    throw Error(ErrorCode::kConflict, directory ? "is a directory, and a file is to be written"
                                                : "is a file, and a directory is to be written")
        .in_file(path.string());
  }
  if (options.overwrite) return;
  if (format == Format::kHuggingFace) {
    // Those who share a directory see to their own files.
    if (!options.only_files && has_model(path)) fail_there(path.string());
  } else if (!directory || !fs::is_empty(path, error)) {
    fail_there(path.string());
  }
}

void require_other(const std::string& source, const std::string& destination) {
  std::error_code error;
  if (!fs::equivalent(source, destination, error) || error) return;
  throw Error(ErrorCode::kInvalidArgument, "the destination is the source").in_file(destination);
}

}  // namespace

ConvertPlace::ConvertPlace(const std::string& source, const std::string& destination, Format format,
                           const ConvertOptions& options) {
  if (destination.empty()) throw Error(ErrorCode::kInvalidArgument, "the destination has no name");
  fs::path path = fs::path(destination);
  while (path.has_relative_path() && !path.has_filename()) path = path.parent_path();  // "a/" is "a"
  require_other(source, path.string());
  require_free(path, format, options);
  if (!is_directory_format(format)) {
    file_name_ = path.filename().string();
    path = path.has_parent_path() ? path.parent_path() : fs::path(".");
  }
  directory_ = path.string();
}

const std::shared_ptr<FileSystem>& ConvertPlace::files() {
  if (files_ != nullptr) return files_;
  std::error_code error;
  for (fs::path step = fs::absolute(directory_); !fs::exists(step, error) && step.has_relative_path();
       step = step.parent_path())
    made_.push_back(step.string());
  files_ = posix_file_system(directory_, {.create = true});
  CAIRN_POINT("convert.place_made");
  return files_;
}

ConvertPlace::~ConvertPlace() {
  if (keep_) return;
  files_.reset();
  // Directories that were made here go, unless somebody else uses them by now. Perhaps memory ran out: this
  // needs none.
  for (const std::string& step : made_)
    if (::rmdir(step.c_str()) != 0) return;
}

}  // namespace cairn
