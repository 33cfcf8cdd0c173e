// Directories as posix.cc uses them: listed in one go, and files opened beneath them and nowhere else.
//
// A file name found inside a checkpoint is somebody else's word. Opening goes through the directory's own
// descriptor, so that no name, however odd, leads out of it. May be used by many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/storage.h"
#include "storage/descriptor.h"

namespace cairn {

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

  // A directory right beneath this one.
  std::shared_ptr<const Directory> enter(std::string_view name, Links links = Links::kRefuse) const;

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  std::string identity() const;  // the same for every way to this directory
  std::optional<std::uint64_t> free_space() const;

  // Its entries by name, without "." and "..". `beneath` names a directory inside this one; a missing one
  // has no entries. A link to a file is one where links are followed.
  std::vector<FileEntry> list(std::string_view beneath = "", Links links = Links::kRefuse) const;

  // Opens something read-only by a relative path without "." or ".." steps. Error kNotFound; kIo with ELOOP
  // for a link that is not followed; kIo with another errno; kCorrupt for a path that is not of that form.
  Descriptor open_beneath(std::string_view relative, Links links = Links::kRefuse) const;

 private:
  Directory(int fd, std::string path);
  static std::shared_ptr<const Directory> adopt(Descriptor fd, std::string path);

  int fd_;
  std::string path_;
};

}  // namespace cairn
