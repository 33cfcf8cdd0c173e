// A directory of the operating system.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "base/file_limit.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/file_channel.h"
#include "storage/file_names.h"
#include "storage/posix_lock.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1U
#endif

namespace cairn {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path, int os_error) {
  const ErrorCode code = os_error == ENOENT   ? ErrorCode::kNotFound
                         : os_error == EEXIST ? ErrorCode::kConflict
                                              : ErrorCode::kIo;
  throw Error(code, what).in_file(path).with_errno(os_error);
}

IoPath path_from_environment() {
  const char* said = std::getenv("CAIRN_IO");
  if (said == nullptr || *said == '\0') return IoPath::kAuto;
  const std::string_view name = said;
  if (name == "buffered") return IoPath::kBuffered;
  if (name == "direct") return IoPath::kDirect;
  if (name == "uring") return IoPath::kUring;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("CAIRN_IO is '{}'; buffered, direct and uring are known", name));
}

void sync_descriptor(int fd, const std::string& path) {
  if (::fsync(fd) == 0) return;
  // Some network file systems do not know it for directories: there is nothing to wait for then.
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return;
  fail("cannot make the directory durable", path, errno);
}

// Like mkdir -p; every directory that gets a new entry is made durable.
void make_directories(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string step = path.substr(0, end);
    if (::mkdir(step.c_str(), 0777) == 0) {
      CAIRN_POINT("directory.made");
      const std::size_t slash = step.find_last_of('/');
      const std::string above = slash == step.npos ? "." : slash == 0 ? "/" : step.substr(0, slash);
      const auto parent = Directory::open(above);
      sync_descriptor(parent->descriptor(), above);
    } else if (errno != EEXIST) {
      const int os_error = errno;
      throw Error(ErrorCode::kIo, "cannot make the directory").in_file(step).with_errno(os_error);
    }
    if (end == path.npos) return;
  }
}

std::optional<std::uint64_t> free_space_of(const Directory& directory) {
  struct statvfs status;
  if (::fstatvfs(directory.descriptor(), &status) != 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

class PosixSource final : public ByteSource {
 public:
  PosixSource(std::unique_ptr<FileChannel> channel, std::uint64_t size)
      : channel_(std::move(channel)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return channel_->path(); }
  bool prefers_alignment() const override { return channel_->is_direct(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > size_ || to.size() > size_ - offset) {
      throw Error(ErrorCode::kCorrupt, fmt::format("{} bytes wanted of a file of {}", to.size(), size_))
          .in_file(name())
          .at(offset);
    }
    channel_->read(offset, to);
  }

 private:
  std::unique_ptr<FileChannel> channel_;
  std::uint64_t size_;
};

// The name of a file that is being written. It goes on every way out, unless the file has got another.
class PartialName {
 public:
  PartialName(std::shared_ptr<const Directory> directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}
  PartialName(const PartialName&) = delete;
  PartialName& operator=(const PartialName&) = delete;
  ~PartialName() { remove(); }

  Descriptor create() {
    constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    Descriptor file(
        uninterrupted([&] { return ::openat(directory_->descriptor(), name_.c_str(), kFlags, 0666); }));
    if (file.get() < 0) fail("cannot create", directory_->path() + "/" + name_, errno);
    there_ = true;
    return file;
  }
  const char* text() const { return name_.c_str(); }
  void forget() { there_ = false; }
  void remove() noexcept {
    if (std::exchange(there_, false)) ::unlinkat(directory_->descriptor(), name_.c_str(), 0);
  }

 private:
  std::shared_ptr<const Directory> directory_;
  std::string name_;
  bool there_ = false;
};

class PosixWriter final : public FileWriter {
 public:
  PosixWriter(std::shared_ptr<const Directory> directory, std::string_view name, const CreateOptions& options,
              IoPath io, std::shared_ptr<UringPool> rings)
      : directory_(std::move(directory)),
        name_(name),
        options_(options),
        partial_(directory_, partial_name(name)),
        channel_(std::make_unique<FileChannel>(partial_.create(), shown(name_), io, std::move(rings))) {
    // In memory a reservation would be a pass over all the pages, to clear them.
    if (options.size > 0 && !channel_->is_in_memory()) reserve(channel_->descriptor());
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::uint64_t end = checked_add<std::uint64_t>(offset, bytes.size());
    channel_->write(offset, bytes);
    std::uint64_t last = end_.load();
    while (last < end && !end_.compare_exchange_weak(last, end)) {
    }
  }

  bool read_back(std::uint64_t offset, std::span<std::byte> to) override {
    channel_->read(offset, to);
    return true;
  }

  bool prefers_alignment() const override { return channel_ != nullptr && channel_->is_direct(); }

  void commit() override {
    if (channel_ == nullptr)
      throw Error(ErrorCode::kInvalidArgument, "a file is committed once").in_file(shown(name_));
    const std::unique_ptr<FileChannel> channel = std::move(channel_);
    const int fd = channel->descriptor();
    CAIRN_POINT("file.written");
    const auto end = static_cast<off_t>(end_.load());
    if (options_.size > end_ && uninterrupted([&] { return ::ftruncate(fd, end); }) != 0)
      fail("cannot cut the file to its length", shown(name_), errno);
    CAIRN_POINT("file.before_sync");
    if (options_.durable) sync(fd);
    CAIRN_POINT("file.after_sync");
    channel->close();
    CAIRN_POINT("file.before_rename");
    if (options_.last_check) options_.last_check();
    appear();
    partial_.forget();
    CAIRN_POINT("file.after_rename");
  }

 private:
  std::string shown(const std::string& name) const { return directory_->path() + "/" + name; }

  // After a failed fdatasync nobody knows what is on the disk, and a second one would not tell.
  void sync(int fd) const {
    if (::fdatasync(fd) == 0) return;
    const int os_error = errno;
    fail("cannot make the file durable", shown(name_), os_error);
  }

  // Space is found now or never; a file system that cannot reserve simply goes on. The room is asked
  // for first: a reservation that fails takes everything there is for a moment, and whoever else
  // writes to the disk in that moment fails too.
  void reserve(int fd) {
    const std::optional<std::uint64_t> room = free_space_of(*directory_);
    int os_error = room && *room < options_.size ? ENOSPC : 0;
    // The size is a generous guess: what is too large will show when it is written.
    if (os_error == 0 && options_.size > largest_file()) return;
    if (os_error == 0 && ::fallocate(fd, 0, 0, static_cast<off_t>(options_.size)) != 0) os_error = errno;
    if (os_error != ENOSPC && os_error != EDQUOT) return;
    fail("no room for the file", shown(name_), os_error);
  }

  void appear() {
    const int at = directory_->descriptor();
    if (options_.replace) {
      if (::renameat(at, partial_.text(), at, name_.c_str()) != 0) fail("cannot rename", shown(name_), errno);
      return;
    }
    if (::syscall(SYS_renameat2, at, partial_.text(), at, name_.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS)
      fail(errno == EEXIST ? "there is a file of this name already" : "cannot rename", shown(name_), errno);
    // A file system without the exclusive rename has links, or nothing that is exclusive.
    if (::linkat(at, partial_.text(), at, name_.c_str(), 0) == 0) return partial_.remove();
    const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOTSUP || errno == EMLINK ||
                          errno == ENOSYS || errno == EINVAL;
    if (!no_links)
      fail(errno == EEXIST ? "there is a file of this name already" : "cannot link", shown(name_), errno);
    if (::faccessat(at, name_.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
      fail("there is a file of this name already", shown(name_), EEXIST);
    if (::renameat(at, partial_.text(), at, name_.c_str()) != 0) fail("cannot rename", shown(name_), errno);
  }

  std::shared_ptr<const Directory> directory_;
  std::string name_;
  CreateOptions options_;
  PartialName partial_;
  std::unique_ptr<FileChannel> channel_;
  std::atomic<std::uint64_t> end_ = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  PosixFileSystem(std::shared_ptr<const Directory> directory, IoPath io, Links links)
      : directory_(std::move(directory)),
        io_(io == IoPath::kAuto ? path_from_environment() : io),
        links_(links) {
    if (io_ == IoPath::kAuto || io_ == IoPath::kUring) rings_ = UringPool::make();
  }

  const std::string& root() const override { return directory_->path(); }

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    check_file_name(name);
    if (!options.replace && stat(name)) fail("there is a file of this name already", shown(name), EEXIST);
    CAIRN_POINT("file.before_create");
    auto writer = std::make_unique<PosixWriter>(directory_, name, options, io_, rings_);
    CAIRN_POINT("file.created");
    return writer;
  }

  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    CAIRN_POINT("file.before_open");
    auto channel = std::make_unique<FileChannel>(
        Descriptor(open_descriptor_beneath(*directory_, name, links_)), shown(name), io_, rings_);
    struct stat status;
    if (::fstat(channel->descriptor(), &status) != 0) fail("cannot look at the file", shown(name), errno);
    if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kIo, "is not a regular file").in_file(shown(name));
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (io_ == IoPath::kAuto) channel->use_cache_if_warm(size);
    return std::make_shared<PosixSource>(std::move(channel), size);
  }

  std::optional<FileEntry> stat(std::string_view name) const override {
    check_file_name(name);
    const std::string text(name);
    struct stat status;
    if (::fstatat(directory_->descriptor(), text.c_str(), &status,
                  links_ == Links::kFollow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return std::nullopt;
      fail("cannot look at the file", shown(name), errno);
    }
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    return FileEntry{text, static_cast<std::uint64_t>(status.st_size)};
  }

  std::vector<FileEntry> list() const override {
    std::vector<FileEntry> files;
    for (DirectoryEntry& entry : directory_->list()) {
      const bool followed = links_ == Links::kFollow && entry.leads_to_file;
      if (followed || entry.kind == DirectoryEntry::Kind::kFile)
        files.push_back({std::move(entry.name), entry.size});
    }
    return files;
  }

  std::optional<std::string> version_of(std::string_view name) const override {
    check_file_name(name);
    struct stat status;
    if (::fstatat(directory_->descriptor(), std::string(name).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return std::nullopt;
      fail("cannot look at the file", shown(name), errno);
    }
    return fmt::format("{}:{}:{}:{}.{}:{}.{}", status.st_dev, status.st_ino, status.st_size,
                       status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                       status.st_ctim.tv_nsec);
  }

  void rename(std::string_view from, std::string_view to) override {
    check_file_name(from);
    check_file_name(to);
    const int at = directory_->descriptor();
    if (::renameat(at, std::string(from).c_str(), at, std::string(to).c_str()) != 0)
      fail("cannot rename", shown(from), errno);
  }

  void remove(std::string_view name) override {
    check_file_name(name);
    CAIRN_POINT("file.before_remove");
    if (::unlinkat(directory_->descriptor(), std::string(name).c_str(), 0) != 0)
      fail("cannot remove", shown(name), errno);
    CAIRN_POINT("file.after_remove");
  }

  void sync_directory() override {
    CAIRN_POINT("directory.before_sync");
    sync_descriptor(directory_->descriptor(), root());
    CAIRN_POINT("directory.after_sync");
  }

  std::unique_ptr<FileLock> lock(std::string_view name) override {
    check_file_name(name);
    return posix_lock(directory_, name);
  }

  std::optional<std::uint64_t> free_space() const override { return free_space_of(*directory_); }

 private:
  std::string shown(std::string_view name) const { return root() + "/" + std::string(name); }

  std::shared_ptr<const Directory> directory_;
  IoPath io_;
  Links links_;
  std::shared_ptr<UringPool> rings_;
};

}  // namespace

std::unique_ptr<FileSystem> posix_file_system(const std::string& path, const PosixOptions& options) {
  if (options.create) make_directories(path);
  return std::make_unique<PosixFileSystem>(Directory::open(path), options.io,
                                           options.follow_links ? Links::kFollow : Links::kRefuse);
}

}  // namespace cairn
