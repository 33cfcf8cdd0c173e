#include "os_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace cairn::trial {
namespace {

struct Watched {
  std::string directory;
  OsWatcher* watcher = nullptr;
};
std::atomic<const Watched*> watched = nullptr;
thread_local bool answering = false;  // this thread is in a watcher

std::string path_of(int fd) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t got = ::readlink(link.c_str(), path.data(), path.size());
  return got > 0 ? std::string(path.data(), static_cast<std::size_t>(got)) : std::string();
}

std::string absolute(int at, std::string_view name) {
  constexpr std::string_view kOpenFiles = "/proc/self/fd/";
  if (name.starts_with(kOpenFiles)) return path_of(std::atoi(name.data() + kOpenFiles.size()));
  if (name.starts_with('/')) return std::string(name);
  std::array<char, 4096> here{};
  std::string path = at != AT_FDCWD                                  ? path_of(at)
                     : ::getcwd(here.data(), here.size()) != nullptr ? here.data()
                                                                     : "";
  return name == "." ? path : path + "/" + std::string(name);
}

// The path from the watched directory on.
std::optional<std::string> beneath(const Watched& from, const std::string& path) {
  const std::string& root = from.directory;
  if (!path.starts_with(root)) return std::nullopt;
  if (path.size() == root.size()) return std::string();
  if (path[root.size()] != '/') return std::nullopt;
  return path.substr(root.size() + 1);
}

OsResult result_of(long value) { return {value, value == -1 ? errno : 0}; }

OsResult ask(const Watched& now, const OsRequest& request, const OsProceed::Call& call) {
  const int before = errno;  // a call that succeeds leaves it alone: readdir's callers count on it
  bool made = false;
  const OsProceed::Call noted = [&](std::size_t most) {
    made = true;
    return call(most);
  };
  answering = true;
  OsResult result = now.watcher->on(request, OsProceed(noted));
  if (request.call == OsCall::kClose && !made) (void)call(0);
  answering = false;
  errno = result.ok() ? before : result.error;
  return result;
}

// `call(most)` is the real one. `path` is where it happens.
template <class Call> long watch(OsRequest request, const std::string& path, const Call& call) {
  const Watched* const now = watched.load();
  const auto inside = beneath(*now, path);
  if (!inside) return call(std::numeric_limits<std::size_t>::max());
  request.path = *inside;
  return ask(*now, request, [&](std::size_t most) { return result_of(call(most)); }).value;
}

bool is_watched() { return watched.load() != nullptr && !answering; }

template <class Call> long watch_open_file(OsCall kind, const char* function, int fd, const Call& call) {
  OsRequest request;
  request.call = kind;
  request.function = function;
  request.fd = fd;
  return watch(std::move(request), path_of(fd), [&](std::size_t) { return call(); });
}

template <class Call>
long watch_name(OsCall kind, const char* function, int at, const char* name, const Call& call) {
  OsRequest request;
  request.call = kind;
  request.function = function;
  return watch(std::move(request), absolute(at, name), [&](std::size_t) { return call(); });
}

template <class Call>
long watch_open(const char* function, int at, const char* name, int flags, const Call& call) {
  OsRequest request;
  request.call = OsCall::kOpen;
  request.function = function;
  request.flags = flags;
  return watch(std::move(request), absolute(at, name), [&](std::size_t) { return call(); });
}

template <class Call>
long watch_two_names(OsCall kind, const char* function, int from_at, const char* from, int to_at,
                     const char* to, const Call& call) {
  OsRequest request;
  request.call = kind;
  request.function = function;
  request.target = beneath(*watched.load(), absolute(to_at, to)).value_or(to);
  return watch(std::move(request), absolute(from_at, from), [&](std::size_t) { return call(); });
}

template <class Call> long watch_bytes(OsRequest request, int fd, const Call& call) {
  request.fd = fd;
  const std::uint64_t size = request.size;
  return watch(std::move(request), path_of(fd),
               [&](std::size_t most) { return call(std::min<std::size_t>(size, most)); });
}

}  // namespace

std::string watched_directory(const std::string& directory) {
  ::setenv("CAIRN_IO", "buffered", 0);
  std::filesystem::create_directories(directory);
  return std::filesystem::canonical(directory).string();
}

OsWatch::OsWatch(std::string directory, OsWatcher& watcher) {
  if (watched.load() != nullptr) throw std::logic_error("one watch at a time");
  watched = new Watched{std::move(directory), &watcher};
}

OsWatch::~OsWatch() { delete watched.exchange(nullptr); }

}  // namespace cairn::trial

// The linker's names: calls of `pread` come to __wrap_pread, and __real_pread is the system's.

extern "C" {

int __real_open(const char*, int, ...);
int __real_openat(int, const char*, int, ...);
long __real_syscall(long, ...);
ssize_t __real_read(int, void*, std::size_t);
ssize_t __real_pread(int, void*, std::size_t, off_t);
ssize_t __real_write(int, const void*, std::size_t);
ssize_t __real_pwrite(int, const void*, std::size_t, off_t);
int __real_ftruncate(int, off_t);
int __real_fallocate(int, int, off_t, off_t);
int __real_fsync(int);
int __real_fdatasync(int);
int __real_renameat(int, const char*, int, const char*);
int __real_linkat(int, const char*, int, const char*, int);
int __real_unlink(const char*);
int __real_unlinkat(int, const char*, int);
int __real_mkdir(const char*, mode_t);
int __real_stat(const char*, struct stat*);
int __real_fstat(int, struct stat*);
int __real_fstatat(int, const char*, struct stat*, int);
int __real_fstatvfs(int, struct statvfs*);
int __real_fstatfs(int, struct statfs*);
DIR* __real_fdopendir(int);
struct dirent* __real_readdir(DIR*);
int __real_flock(int, int);
int __real_close(int);

using namespace cairn::trial;

// The mode is there when a file may be made.
#define CAIRN_MODE(flags)                                           \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list more;                                                   \
    va_start(more, flags);                                          \
    mode = va_arg(more, mode_t);                                    \
    va_end(more);                                                   \
  }

int __wrap_open(const char* name, int flags, ...) {
  CAIRN_MODE(flags)
  const auto call = [&]() -> long { return __real_open(name, flags, mode); };
  return static_cast<int>(is_watched() ? watch_open("open", AT_FDCWD, name, flags, call) : call());
}

int __wrap_openat(int at, const char* name, int flags, ...) {
  CAIRN_MODE(flags)
  const auto call = [&]() -> long { return __real_openat(at, name, flags, mode); };
  return static_cast<int>(is_watched() ? watch_open("openat", at, name, flags, call) : call());
}

long __wrap_syscall(long number, ...) {
  std::array<long, 6> a{};
  va_list more;
  va_start(more, number);
  for (long& value : a) value = va_arg(more, long);
  va_end(more);
  const auto call = [&]() -> long { return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]); };
  const auto text = [&](std::size_t i) { return reinterpret_cast<const char*>(a[i]); };
  if (!is_watched()) return call();
  if (number == SYS_renameat2) {
    return watch_two_names(OsCall::kRename, "renameat2", static_cast<int>(a[0]), text(1),
                           static_cast<int>(a[2]), text(3), call);
  }
  if (number == SYS_openat2) {
    const auto flags = static_cast<int>(reinterpret_cast<const open_how*>(a[2])->flags);
    return watch_open("openat2", static_cast<int>(a[0]), text(1), flags, call);
  }
  return call();
}

ssize_t __wrap_read(int fd, void* to, std::size_t size) {
  if (!is_watched()) return __real_read(fd, to, size);
  OsRequest request{.call = OsCall::kRead, .function = "read", .size = size};
  return watch_bytes(std::move(request), fd, [&](std::size_t most) { return __real_read(fd, to, most); });
}

ssize_t __wrap_pread(int fd, void* to, std::size_t size, off_t offset) {
  if (!is_watched()) return __real_pread(fd, to, size, offset);
  OsRequest request{.call = OsCall::kRead, .function = "pread", .size = size};
  request.offset = static_cast<std::uint64_t>(offset);
  return watch_bytes(std::move(request), fd,
                     [&](std::size_t most) { return __real_pread(fd, to, most, offset); });
}

ssize_t __wrap_write(int fd, const void* from, std::size_t size) {
  if (!is_watched()) return __real_write(fd, from, size);
  OsRequest request{.call = OsCall::kWrite, .function = "write", .size = size};
  request.bytes = {static_cast<const std::byte*>(from), size};
  const off_t at = ::lseek(fd, 0, SEEK_CUR);
  request.offset = at > 0 ? static_cast<std::uint64_t>(at) : 0;
  return watch_bytes(std::move(request), fd, [&](std::size_t most) { return __real_write(fd, from, most); });
}

ssize_t __wrap_pwrite(int fd, const void* from, std::size_t size, off_t offset) {
  if (!is_watched()) return __real_pwrite(fd, from, size, offset);
  OsRequest request{.call = OsCall::kWrite, .function = "pwrite", .size = size};
  request.bytes = {static_cast<const std::byte*>(from), size};
  request.offset = static_cast<std::uint64_t>(offset);
  return watch_bytes(std::move(request), fd,
                     [&](std::size_t most) { return __real_pwrite(fd, from, most, offset); });
}

int __wrap_ftruncate(int fd, off_t length) {
  if (!is_watched()) return __real_ftruncate(fd, length);
  OsRequest request{.call = OsCall::kTruncate, .function = "ftruncate"};
  request.size = static_cast<std::uint64_t>(length);
  return static_cast<int>(
      watch_bytes(std::move(request), fd, [&](std::size_t) { return __real_ftruncate(fd, length); }));
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t length) {
  if (!is_watched()) return __real_fallocate(fd, mode, offset, length);
  OsRequest request{.call = OsCall::kAllocate, .function = "fallocate", .flags = mode};
  request.offset = static_cast<std::uint64_t>(offset);
  request.size = static_cast<std::uint64_t>(length);
  return static_cast<int>(watch_bytes(
      std::move(request), fd, [&](std::size_t) { return __real_fallocate(fd, mode, offset, length); }));
}

int __wrap_fsync(int fd) {
  if (!is_watched()) return __real_fsync(fd);
  return static_cast<int>(watch_open_file(OsCall::kSync, "fsync", fd, [&] { return __real_fsync(fd); }));
}

int __wrap_fdatasync(int fd) {
  if (!is_watched()) return __real_fdatasync(fd);
  return static_cast<int>(
      watch_open_file(OsCall::kSync, "fdatasync", fd, [&] { return __real_fdatasync(fd); }));
}

int __wrap_renameat(int from_at, const char* from, int to_at, const char* to) {
  const auto call = [&]() -> long { return __real_renameat(from_at, from, to_at, to); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_two_names(OsCall::kRename, "renameat", from_at, from, to_at, to, call));
}

int __wrap_linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  const auto call = [&]() -> long { return __real_linkat(from_at, from, to_at, to, flags); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_two_names(OsCall::kLink, "linkat", from_at, from, to_at, to, call));
}

int __wrap_unlink(const char* name) {
  const auto call = [&]() -> long { return __real_unlink(name); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_name(OsCall::kUnlink, "unlink", AT_FDCWD, name, call));
}

int __wrap_unlinkat(int at, const char* name, int flags) {
  const auto call = [&]() -> long { return __real_unlinkat(at, name, flags); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_name(OsCall::kUnlink, "unlinkat", at, name, call));
}

int __wrap_mkdir(const char* name, mode_t mode) {
  const auto call = [&]() -> long { return __real_mkdir(name, mode); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_name(OsCall::kMakeDirectory, "mkdir", AT_FDCWD, name, call));
}

int __wrap_stat(const char* name, struct stat* to) {
  const auto call = [&]() -> long { return __real_stat(name, to); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_name(OsCall::kStat, "stat", AT_FDCWD, name, call));
}

int __wrap_fstatat(int at, const char* name, struct stat* to, int flags) {
  const auto call = [&]() -> long { return __real_fstatat(at, name, to, flags); };
  if (!is_watched()) return static_cast<int>(call());
  return static_cast<int>(watch_name(OsCall::kStat, "fstatat", at, name, call));
}

int __wrap_fstat(int fd, struct stat* to) {
  if (!is_watched()) return __real_fstat(fd, to);
  return static_cast<int>(watch_open_file(OsCall::kStat, "fstat", fd, [&] { return __real_fstat(fd, to); }));
}

int __wrap_fstatvfs(int fd, struct statvfs* to) {
  if (!is_watched()) return __real_fstatvfs(fd, to);
  return static_cast<int>(
      watch_open_file(OsCall::kStat, "fstatvfs", fd, [&] { return __real_fstatvfs(fd, to); }));
}

int __wrap_fstatfs(int fd, struct statfs* to) {
  if (!is_watched()) return __real_fstatfs(fd, to);
  return static_cast<int>(
      watch_open_file(OsCall::kStat, "fstatfs", fd, [&] { return __real_fstatfs(fd, to); }));
}

DIR* __wrap_fdopendir(int fd) {
  if (!is_watched()) return __real_fdopendir(fd);
  const long got = watch_open_file(OsCall::kList, "fdopendir", fd, [&] {
    DIR* const stream = __real_fdopendir(fd);
    return stream == nullptr ? -1L : reinterpret_cast<long>(stream);
  });
  return got == -1 ? nullptr : reinterpret_cast<DIR*>(got);
}

// The end of the directory is no failure.
struct dirent* __wrap_readdir(DIR* stream) {
  if (!is_watched()) return __real_readdir(stream);
  const long got = watch_open_file(OsCall::kList, "readdir", ::dirfd(stream), [&] {
    errno = 0;
    struct dirent* const entry = __real_readdir(stream);
    return entry == nullptr && errno != 0 ? -1L : reinterpret_cast<long>(entry);
  });
  return got == -1 ? nullptr : reinterpret_cast<struct dirent*>(got);
}

int __wrap_flock(int fd, int operation) {
  if (!is_watched()) return __real_flock(fd, operation);
  return static_cast<int>(
      watch_open_file(OsCall::kLock, "flock", fd, [&] { return __real_flock(fd, operation); }));
}

int __wrap_close(int fd) {
  if (!is_watched()) return __real_close(fd);
  return static_cast<int>(watch_open_file(OsCall::kClose, "close", fd, [&] { return __real_close(fd); }));
}

}  // extern "C"
