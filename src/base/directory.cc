#include "base/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "cairn/error.h"

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

void check_steps(std::string_view relative) {
  bool good = !relative.empty() && relative.find('\0') == relative.npos;
  for (std::size_t begin = 0; good && begin <= relative.size();) {
    const std::size_t end = std::min(relative.find('/', begin), relative.size());
    const std::string_view step = relative.substr(begin, end - begin);
    good = !step.empty() && step != "." && step != "..";
    begin = end + 1;
  }
  if (good) return;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("'{}' is not a path inside the directory", relative.substr(0, 256)));
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

int open_beneath(int root, const std::string& relative, int flags) {
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
DirectoryEntry describe(int directory, const std::string& shown, const char* name) {
  DirectoryEntry entry;
  entry.name = name;
  entry.kind = DirectoryEntry::Kind::kOther;
  struct stat status;
  if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return entry;  // gone meanwhile
    const int os_error = errno;
    throw Error(ErrorCode::kIo, "cannot look at the file").in_file(shown + "/" + name).with_errno(os_error);
  }
  if (S_ISDIR(status.st_mode)) entry.kind = DirectoryEntry::Kind::kDirectory;
  if (S_ISREG(status.st_mode)) entry.kind = DirectoryEntry::Kind::kFile;
  if (S_ISLNK(status.st_mode)) {
    entry.kind = DirectoryEntry::Kind::kLink;
    if (::fstatat(directory, name, &status, 0) != 0) return entry;
  }
  entry.leads_to_file = S_ISREG(status.st_mode);
  if (entry.leads_to_file) entry.size = static_cast<std::uint64_t>(status.st_size);
  return entry;
}

}  // namespace

Directory::Directory(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

Directory::~Directory() { ::close(fd_); }

std::shared_ptr<const Directory> Directory::open(const std::string& path) {
  Descriptor fd(uninterrupted([&] { return ::open(path.c_str(), kDirectoryFlags); }));
  if (fd.get() < 0) fail_to_open(path, errno);
  std::string name = path;
  auto* const opened = new Directory(fd.get(), std::move(name));
  fd.release();  // it is the directory's now
  return std::shared_ptr<const Directory>(opened);
}

std::vector<DirectoryEntry> Directory::list(std::string_view beneath) const {
  const std::string where(beneath);
  const std::string shown = where.empty() ? path_ : path_ + "/" + where;
  if (!where.empty()) check_steps(where);
  const int fd = where.empty() ? uninterrupted([&] { return ::openat(fd_, ".", kDirectoryFlags); })
                               : open_beneath(fd_, where, kDirectoryFlags);
  if (fd < 0 && !where.empty() && is_absent(errno)) return {};
  if (fd < 0) fail_to_open(shown, errno);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (stream == nullptr) {
    const int os_error = errno;
    ::close(fd);
    fail_to_open(shown, os_error);
  }
  std::vector<DirectoryEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* found = ::readdir(stream.get());
    if (found == nullptr) break;
    const std::string_view name = found->d_name;
    if (name != "." && name != "..") entries.push_back(describe(fd, shown, found->d_name));
  }
  if (errno != 0) {
    throw Error(ErrorCode::kIo, "cannot list the directory").in_file(shown).with_errno(errno);
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

int open_descriptor_beneath(const Directory& root, std::string_view relative, Links links) {
  check_steps(relative);
  const std::string name(relative);
  const bool follow = links == Links::kFollow && name.find('/') == name.npos;
  const int fd = follow ? uninterrupted([&] { return ::openat(root.descriptor(), name.c_str(), kFileFlags); })
                        : open_beneath(root.descriptor(), name, kFileFlags);
  if (fd < 0) fail_to_open(root.path() + "/" + name, errno);
  return fd;
}

std::shared_ptr<const ByteSource> open_file_beneath(const Directory& root, std::string_view relative,
                                                    Links links) {
  const std::string path = root.path() + "/" + std::string(relative);
  return source_of_descriptor(open_descriptor_beneath(root, relative, links), path);
}

}  // namespace cairn
