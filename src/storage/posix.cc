// A directory of the operating system.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/source.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/descriptor.h"
#include "storage/directory.h"
#include "storage/file_channel.h"
#include "storage/file_names.h"
#include "storage/kinds.h"
#include "storage/posix_error.h"
#include "storage/posix_lock.h"
#include "storage/posix_writer.h"

namespace cairn {
namespace {

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

// False for some network file systems, which do not know it for directories: there is nothing to wait for.
bool sync_descriptor(int fd, const std::string& path) {
  if (::fsync(fd) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  fail_with("cannot make the directory durable", path, errno);
}

// Whether a directory is on a disk, or in the memory, of this machine alone: a lock reaches everybody then.
bool is_local(int fd) {
  constexpr std::array<std::uint32_t, 7> kLocal = {
      0xEF53,      // ext2, ext3, ext4
      0x58465342,  // xfs
      0x9123683E,  // btrfs
      0x01021994,  // tmpfs
      0x794C7630,  // overlayfs
      0xF2F52010,  // f2fs
      0x2FC12FC1,  // zfs
  };
  struct statfs status;
  if (::fstatfs(fd, &status) != 0) return false;
  const auto kind = static_cast<std::uint32_t>(status.f_type);
  return std::find(kLocal.begin(), kLocal.end(), kind) != kLocal.end();
}

// Directories that are made on the way to one. Unless they are kept, they go again: whoever fails next leaves
// nothing behind, and needs no memory for that.
class MadeDirectories {
 public:
  MadeDirectories() = default;
  MadeDirectories(const MadeDirectories&) = delete;
  MadeDirectories& operator=(const MadeDirectories&) = delete;
  ~MadeDirectories() {
    if (!kept_) remove();
  }

  // Like mkdir -p; every directory that gets a new entry is made durable.
  void make(const std::string& path) {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string step = path.substr(0, end);
      paths_.push_back(std::filesystem::absolute(step).string());
      if (::mkdir(step.c_str(), 0777) == 0) {
        CAIRN_POINT("directory.made");
        const std::string above = split_path(step).folder;
        sync_descriptor(Directory::open(above)->descriptor(), above);
      } else {
        const int os_error = errno;
        paths_.pop_back();
        if (os_error != EEXIST)
          throw Error(ErrorCode::kIo, "cannot make the directory").in_file(step).with_errno(os_error);
      }
      if (end == path.npos) return;
    }
  }
  void keep() noexcept { kept_ = true; }
  void remove() noexcept {
    for (auto path = paths_.rbegin(); path != paths_.rend() && ::rmdir(path->c_str()) == 0; ++path) {
    }
  }

 private:
  std::vector<std::string> paths_;
  bool kept_ = false;
};

class PosixSource final : public ByteSource {
 public:
  PosixSource(std::unique_ptr<FileChannel> channel, std::uint64_t size)
      : channel_(std::move(channel)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return channel_->path(); }
  bool prefers_alignment() const override { return channel_->is_direct(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), size_, name());
    channel_->read(offset, to);
  }

 private:
  std::unique_ptr<FileChannel> channel_;
  std::uint64_t size_;
};

class PosixFileSystem final : public FileSystem {
 public:
  PosixFileSystem(std::shared_ptr<const Directory> directory, const FileSystemOptions& options,
                  std::unique_ptr<MadeDirectories> made)
      : directory_(std::move(directory)),
        options_(options),
        io_(options.io == IoPath::kAuto ? path_from_environment() : options.io),
        links_(options.follow_links ? Links::kFollow : Links::kRefuse),
        made_(std::move(made)) {
    if (io_ == IoPath::kAuto || io_ == IoPath::kUring) rings_ = UringPool::make();
    made_->keep();
  }

  // A name is taken alone everywhere (posix_writer.cc); nothing compares a file and replaces it in one step.
  Capabilities capabilities() const override {
    return {.atomic_rename = true,
            .exclusive_create = true,
            .append = true,
            .ranged_writes = true,
            .locks_across_machines = is_local(directory_->descriptor()),
            .directory_sync = syncs_,
            .symbolic_links = true,
            .modification_times = true};
  }
  const std::string& root() const override { return directory_->path(); }
  std::string identity() const override { return directory_->identity(); }

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    check_file_name(name);
    if (options.expected)
      throw Error(ErrorCode::kUnsupported, "a directory cannot replace a file only if it is unchanged")
          .in_file(shown(name));
    if (!options.replace && stat(name))
      fail_with("there is a file of this name already", shown(name), EEXIST);
    CAIRN_POINT("file.before_create");
    auto writer = posix_writer(directory_, name, options, io_, rings_);
    CAIRN_POINT("file.created");
    return writer;
  }

  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    CAIRN_POINT("file.before_open");
    auto channel =
        std::make_unique<FileChannel>(directory_->open_beneath(name, links_), shown(name), io_, rings_);
    struct stat status;
    if (::fstat(channel->descriptor(), &status) != 0)
      fail_with("cannot look at the file", shown(name), errno);
    if (S_ISDIR(status.st_mode)) fail_with("cannot read as a file", shown(name), EISDIR);
    if (!S_ISREG(status.st_mode)) fail_with("is a device or a pipe, not a regular file", shown(name), EINVAL);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (io_ == IoPath::kAuto) channel->use_cache_if_warm(size);
    return std::make_shared<PosixSource>(std::move(channel), size);
  }

  std::optional<FileEntry> stat(std::string_view name) const override {
    const auto status = status_of(name);
    if (!status || !S_ISREG(status->st_mode)) return std::nullopt;
    return FileEntry{std::string(name), static_cast<std::uint64_t>(status->st_size)};
  }

  std::vector<FileEntry> entries(std::string_view folder) const override {
    return directory_->list(folder, folder.empty() ? links_ : Links::kRefuse);
  }

  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override {
    check_file_name(folder);
    auto made = std::make_unique<MadeDirectories>();
    if (create) made->make(shown(folder));
    FileSystemOptions options = options_;
    options.create = false;
    return std::make_unique<PosixFileSystem>(directory_->enter(folder, links_), options, std::move(made));
  }

  void remove_made_folders() noexcept override { made_->remove(); }

  std::optional<std::string> version_of(std::string_view name) const override {
    const auto status = status_of(name);
    if (!status) return std::nullopt;
    return fmt::format("{}:{}:{}:{}.{}:{}.{}", status->st_dev, status->st_ino, status->st_size,
                       status->st_mtim.tv_sec, status->st_mtim.tv_nsec, status->st_ctim.tv_sec,
                       status->st_ctim.tv_nsec);
  }

  std::optional<std::chrono::system_clock::time_point> modified(std::string_view name) const override {
    using namespace std::chrono;
    const auto status = status_of(name);
    if (!status) return std::nullopt;
    const auto since = seconds(status->st_mtim.tv_sec) + nanoseconds(status->st_mtim.tv_nsec);
    return system_clock::time_point(duration_cast<system_clock::duration>(since));
  }

  void rename(std::string_view from, std::string_view to) override {
    check_file_name(from);
    check_file_name(to);
    const int at = directory_->descriptor();
    if (::renameat(at, std::string(from).c_str(), at, std::string(to).c_str()) != 0)
      fail_with("cannot rename", shown(from), errno);
  }

  void remove(std::string_view name) override {
    check_file_name(name);
    CAIRN_POINT("file.before_remove");
    if (::unlinkat(directory_->descriptor(), std::string(name).c_str(), 0) != 0)
      fail_with("cannot remove", shown(name), errno);
    CAIRN_POINT("file.after_remove");
  }

  void sync_directory() override {
    CAIRN_POINT("directory.before_sync");
    if (!sync_descriptor(directory_->descriptor(), root())) syncs_ = false;
    CAIRN_POINT("directory.after_sync");
  }

  std::unique_ptr<FileLock> lock(std::string_view name) override {
    check_file_name(name);
    return posix_lock(directory_, name);
  }

  std::optional<std::uint64_t> free_space() const override { return directory_->free_space(); }

 private:
  std::string shown(std::string_view name) const { return root() + "/" + std::string(name); }

  // nullopt when nothing has this name.
  std::optional<struct stat> status_of(std::string_view name) const {
    check_file_name(name);
    struct stat status;
    const int flags = links_ == Links::kFollow ? 0 : AT_SYMLINK_NOFOLLOW;
    if (::fstatat(directory_->descriptor(), std::string(name).c_str(), &status, flags) == 0) return status;
    if (errno == ENOENT) return std::nullopt;
    fail_with("cannot look at the file", shown(name), errno);
  }

  std::shared_ptr<const Directory> directory_;
  FileSystemOptions options_;
  IoPath io_;
  Links links_;
  std::atomic<bool> syncs_ = true;  // until it is seen that it does not
  std::unique_ptr<MadeDirectories> made_;
  std::shared_ptr<UringPool> rings_;
};

}  // namespace

std::unique_ptr<FileSystem> posix_file_system(const std::string& path, const FileSystemOptions& options) {
  auto made = std::make_unique<MadeDirectories>();
  if (options.create) made->make(path);
  return std::make_unique<PosixFileSystem>(Directory::open(path), options, std::move(made));
}

Place find_on_disk(const std::string& path, const FileSystemOptions& options) {
  struct stat status;
  const bool there = ::stat(path.c_str(), &status) == 0;
  if (there && S_ISDIR(status.st_mode)) return {posix_file_system(path, options), ""};
  if (!there && errno != ENOENT && errno != ENOTDIR) fail_with("cannot open", path, errno);
  // A link that leads nowhere is there, and opening it says what is wrong.
  if (!there && ::lstat(path.c_str(), &status) != 0) return {};
  const UrlParts parts = split_path(path);
  return {posix_file_system(parts.folder, options), parts.name};
}

}  // namespace cairn
