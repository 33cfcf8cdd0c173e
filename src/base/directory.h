// Directories as checkpoints use them: listed in one go, and files opened beneath them and nowhere else.
//
// A file name found inside a checkpoint is somebody else's word. Opening goes through the directory's own
// descriptor, so that no name, however odd, leads out of it. May be used by many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/source.h"

namespace cairn {

struct DirectoryEntry {
  enum class Kind { kFile, kDirectory, kLink, kOther };
  std::string name;
  Kind kind = Kind::kFile;
  std::uint64_t size = 0;      // bytes; of the link's target for a link to a file
  bool leads_to_file = false;  // a file, or a link to one
};

// What to do with a symbolic link that carries the name of a data file.
enum class Links {
  kRefuse,  // names that come from a file's contents
  // Only the last step, and only for a bare name: directories whose files are links on purpose, as the
  // Hugging Face cache makes them.
  kFollow,
};

class Directory {
 public:
  // Error kNotFound when there is none, kIo with errno when it cannot be opened. A link to a directory
  // given by the user is followed.
  static std::shared_ptr<const Directory> open(const std::string& path);
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory();

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }

  // Its entries by name, without "." and "..". `beneath` names a directory inside this one; a missing one
  // has no entries.
  std::vector<DirectoryEntry> list(std::string_view beneath = "") const;

 private:
  Directory(int fd, std::string path);

  int fd_;
  std::string path_;
};

// The descriptor of a regular file opened read-only as below; the caller closes it.
int open_descriptor_beneath(const Directory& root, std::string_view relative, Links links = Links::kRefuse);

// Opens a regular file by a relative path without "." or ".." steps. Error kNotFound; kIo with ELOOP for
// a link that is not followed; kIo with another errno; kCorrupt for a path that is not of that form.
std::shared_ptr<const ByteSource> open_file_beneath(const Directory& root, std::string_view relative,
                                                    Links links = Links::kRefuse);

}  // namespace cairn
