// A new file in a directory of the operating system.
#include "storage/posix_writer.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/file_limit.h"
#include "base/trial.h"
#include "storage/file_channel.h"
#include "storage/file_names.h"
#include "storage/posix_error.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1U
#endif

namespace cairn {
namespace {

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
    if (file.get() < 0) fail_with("cannot create", directory_->path() + "/" + name_, errno);
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
      fail_with("cannot cut the file to its length", shown(name_), errno);
    CAIRN_POINT("file.before_sync");
    if (options_.durable) sync(fd);
    CAIRN_POINT("file.after_sync");
    channel->close();
    CAIRN_POINT("file.before_rename");
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
    fail_with("cannot make the file durable", shown(name_), os_error);
  }

  // Space is found now or never; a file system that cannot reserve simply goes on. The room is asked
  // for first: a reservation that fails takes everything there is for a moment, and whoever else
  // writes to the disk in that moment fails too.
  void reserve(int fd) {
    const std::optional<std::uint64_t> room = directory_->free_space();
    int os_error = room && *room < options_.size ? ENOSPC : 0;
    // The size is a generous guess: what is too large will show when it is written.
    if (os_error == 0 && options_.size > largest_file()) return;
    if (os_error == 0 && ::fallocate(fd, 0, 0, static_cast<off_t>(options_.size)) != 0) os_error = errno;
    if (os_error != ENOSPC && os_error != EDQUOT) return;
    fail_with("no room for the file", shown(name_), os_error);
  }

  void appear() {
    const int at = directory_->descriptor();
    if (options_.replace) {
      if (::renameat(at, partial_.text(), at, name_.c_str()) != 0)
        fail_with("cannot rename", shown(name_), errno);
      return;
    }
    if (::syscall(SYS_renameat2, at, partial_.text(), at, name_.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS)
      fail_with(errno == EEXIST ? "there is a file of this name already" : "cannot rename", shown(name_),
                errno);
    // A file system without the exclusive rename may have links.
    if (::linkat(at, partial_.text(), at, name_.c_str(), 0) == 0) return partial_.remove();
    const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOTSUP || errno == EMLINK ||
                          errno == ENOSYS || errno == EINVAL;
    if (!no_links)
      fail_with(errno == EEXIST ? "there is a file of this name already" : "cannot link", shown(name_),
                errno);
    appear_in_taken_place(at);
  }

  // Nothing moves a file to a free name only: the name is taken first, which one alone can do, with nothing
  // in it. Whoever looks right then, or after we died right then, finds an empty file.
  void appear_in_taken_place(int at) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const Descriptor taken(uninterrupted([&] { return ::openat(at, name_.c_str(), kFlags, 0666); }));
    if (taken.get() < 0)
      fail_with(errno == EEXIST ? "there is a file of this name already" : "cannot create", shown(name_),
                errno);
    CAIRN_POINT("file.name_taken");
    if (::renameat(at, partial_.text(), at, name_.c_str()) == 0) return;
    const int os_error = errno;
    ::unlinkat(at, name_.c_str(), 0);
    fail_with("cannot rename", shown(name_), os_error);
  }

  std::shared_ptr<const Directory> directory_;
  std::string name_;
  CreateOptions options_;
  PartialName partial_;
  std::unique_ptr<FileChannel> channel_;
  std::atomic<std::uint64_t> end_ = 0;
};

}  // namespace

std::unique_ptr<FileWriter> posix_writer(std::shared_ptr<const Directory> directory, std::string_view name,
                                         const CreateOptions& options, IoPath io,
                                         std::shared_ptr<UringPool> rings) {
  return std::make_unique<PosixWriter>(std::move(directory), name, options, io, std::move(rings));
}

}  // namespace cairn
