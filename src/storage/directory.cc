#include "storage/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cairn/error.h"
#include "storage/file_names.h"

#if __has_include(<linux/openat2.h>) && defined(SYS_openat2)
#include <linux/openat2.h>
#define CAIRN_HAVE_OPENAT2 1
#endif

namespace cairn {
namespace {

constexpr int kFileFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
constexpr int kDirectoryFlags = O_RDONLY | O_CLOEXEC | O_DIRECTORY;

[[noreturn]] void fail_to_open(const std::string& path, int os_error) {
  if (os_error == ENOENT || os_error == ENOTDIR) {
    throw Error(ErrorCode::kNotFound, "no such file or directory").in_file(path);
  }
  const bool left_root = os_error == ELOOP || os_error == EXDEV;
  throw Error(ErrorCode::kIo, left_root ? "is a symbolic link, which is not followed here" : "cannot open")
      .in_file(path)
      .with_errno(os_error);
}

// Nothing there that could be listed, as opposed to a system that cannot look.
bool is_absent(int os_error) {
  return os_error == ENOENT || os_error == ENOTDIR || os_error == ELOOP || os_error == EXDEV ||
         os_error == ENAMETOOLONG;
}

// One step at a time, none of them a link: what openat2 does, on kernels that lack it.
int open_step_by_step(int root, const std::string& relative, int flags) {
  int at = root;
  for (std::size_t begin = 0;;) {
    const std::size_t slash = relative.find('/', begin);
    const bool last = slash == relative.npos;
    const std::string name = relative.substr(begin, last ? relative.npos : slash - begin);
    const int step_flags = (last ? flags : kDirectoryFlags) | O_NOFOLLOW;
    const int fd = uninterrupted([&] { return ::openat(at, name.c_str(), step_flags); });
    const int os_error = errno;
    if (at != root) ::close(at);
    errno = os_error;
    if (fd < 0 || last) return fd;
    at = fd;
    begin = slash + 1;
  }
}

// One that may be searched and not listed is good enough to open a file in it.
int open_directory(int at, const std::string& path, int flags) {
  const int fd = uninterrupted([&] { return ::openat(at, path.c_str(), kDirectoryFlags | flags); });
  if (fd >= 0 || errno != EACCES) return fd;
  return uninterrupted([&] { return ::openat(at, path.c_str(), O_PATH | O_CLOEXEC | O_DIRECTORY | flags); });
}

int open_at(int root, const std::string& relative, int flags) {
#ifdef CAIRN_HAVE_OPENAT2
  struct open_how how = {};
  how.flags = static_cast<std::uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const int fd = uninterrupted(
      [&] { return static_cast<int>(::syscall(SYS_openat2, root, relative.c_str(), &how, sizeof how)); });
  // EPERM: sandboxes answer so for a call they do not know.
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
#endif
  return open_step_by_step(root, relative, flags);
}

// An entry that cannot be looked at is an error: left out, it would be taken for one that is not there.
FileEntry describe(int directory, const std::string& shown, const char* name, Links links) {
  FileEntry entry{name, 0, FileEntry::Kind::kOther};
  struct stat status;
  if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return entry;  // gone meanwhile
    const int os_error = errno;
    throw Error(ErrorCode::kIo, "cannot look at the file").in_file(shown + "/" + name).with_errno(os_error);
  }
  if (S_ISDIR(status.st_mode)) entry.kind = FileEntry::Kind::kFolder;
  const bool followed = S_ISLNK(status.st_mode) && links == Links::kFollow;
  if (followed && ::fstatat(directory, name, &status, 0) != 0) return entry;
  if (S_ISREG(status.st_mode)) {
    entry.kind = FileEntry::Kind::kFile;
    entry.size = static_cast<std::uint64_t>(status.st_size);
  }
  return entry;
}

}  // namespace

Directory::Directory(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

Directory::~Directory() { ::close(fd_); }

std::shared_ptr<const Directory> Directory::open(const std::string& path) {
  return adopt(Descriptor(open_directory(AT_FDCWD, path, 0)), path);
}

std::shared_ptr<const Directory> Directory::enter(std::string_view name, Links links) const {
  check_steps(name);
  const int flags = links == Links::kFollow ? 0 : O_NOFOLLOW;
  return adopt(Descriptor(open_directory(fd_, std::string(name), flags)), path_ + "/" + std::string(name));
}

std::shared_ptr<const Directory> Directory::adopt(Descriptor fd, std::string path) {
  if (fd.get() < 0) fail_to_open(path, errno);
  auto* const opened = new Directory(fd.get(), std::move(path));
  fd.release();  // it is the directory's now
  return std::shared_ptr<const Directory>(opened);
}

std::string Directory::identity() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) fail_to_open(path_, errno);
  return fmt::format("posix:{}:{}", status.st_dev, status.st_ino);
}

std::optional<std::uint64_t> Directory::free_space() const {
  struct statvfs status;
  if (::fstatvfs(fd_, &status) != 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

std::vector<FileEntry> Directory::list(std::string_view beneath, Links links) const {
  const std::string where(beneath);
  const std::string shown = where.empty() ? path_ : path_ + "/" + where;
  if (!where.empty()) check_steps(where);
  const int fd = where.empty() ? uninterrupted([&] { return ::openat(fd_, ".", kDirectoryFlags); })
                               : open_at(fd_, where, kDirectoryFlags);
  if (fd < 0 && !where.empty() && is_absent(errno)) return {};
  if (fd < 0) fail_to_open(shown, errno);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (stream == nullptr) {
    const int os_error = errno;
    ::close(fd);
    fail_to_open(shown, os_error);
  }
  std::vector<FileEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(stream.get());
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    if (name != "." && name != "..") entries.push_back(describe(fd, shown, found->d_name, links));
  }
  if (errno != 0) {
    throw Error(ErrorCode::kIo, "cannot list the directory").in_file(shown).with_errno(errno);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

Descriptor Directory::open_beneath(std::string_view relative, Links links) const {
  check_steps(relative);
  const std::string name(relative);
  const bool follow = links == Links::kFollow && name.find('/') == name.npos;
  Descriptor fd(follow ? uninterrupted([&] { return ::openat(fd_, name.c_str(), kFileFlags); })
                       : open_at(fd_, name, kFileFlags));
  if (fd.get() < 0) fail_to_open(path_ + "/" + name, errno);
  return fd;
}

}  // namespace cairn
