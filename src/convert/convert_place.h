// The place that a conversion writes to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cairn/checkpoint.h"
#include "cairn/convert.h"
#include "cairn/storage.h"

namespace cairn {

// Makes the directories that are missing, and takes them away again when the conversion fails.
class ConvertPlace {
 public:
  // Error kConflict when something is there and may not be replaced, kInvalidArgument when it is the source.
  ConvertPlace(const std::string& source, const std::string& destination, Format format,
               const ConvertOptions& options);
  ConvertPlace(const ConvertPlace&) = delete;
  ConvertPlace& operator=(const ConvertPlace&) = delete;
  ~ConvertPlace();

  // Of a file: its name in files(). Of a directory: empty.
  const std::string& file_name() const { return file_name_; }
  // The directory of the file, or the directory itself. Made on the first call.
  const std::shared_ptr<FileSystem>& files();

  void keep() { keep_ = true; }

 private:
  std::string directory_;
  std::string file_name_;
  std::vector<std::string> made_;  // directories that were not there before, the deepest first
  bool keep_ = false;
  std::shared_ptr<FileSystem> files_;
};

}  // namespace cairn
