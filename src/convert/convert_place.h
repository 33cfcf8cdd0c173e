// The place that a conversion writes to.
#pragma once

#include <memory>
#include <string>

#include "cairn/checkpoint.h"
#include "cairn/convert.h"
#include "cairn/storage.h"

namespace cairn {

// Makes the folders that are missing, and takes them away again when the conversion fails.
class ConvertPlace {
 public:
  // Error kConflict when something is there and may not be replaced, kInvalidArgument when it is the source.
  ConvertPlace(const std::string& source, const std::string& destination, Format format,
               const ConvertOptions& options);
  ConvertPlace(const ConvertPlace&) = delete;
  ConvertPlace& operator=(const ConvertPlace&) = delete;
  ~ConvertPlace();

  // Of a file: its name in files(). Of a folder: empty.
  const std::string& file_name() const { return file_name_; }
  // The folder of the file, or the folder itself. Made on the first call.
  const std::shared_ptr<FileSystem>& files();

  void keep() { keep_ = true; }

 private:
  std::string folder_;
  std::string file_name_;
  bool keep_ = false;
  std::shared_ptr<FileSystem> files_;
};

}  // namespace cairn
