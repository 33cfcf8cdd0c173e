#include "storage/posix_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/file_limit.h"
#include "base/trial.h"
#include "cairn/error.h"

namespace cairn {
namespace {

// How often the file may vanish under our hands before somebody else is said to have the lock.
constexpr int kAttempts = 100;

class PosixLock final : public FileLock {
 public:
  PosixLock(std::shared_ptr<const Directory> directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}
  PosixLock(const PosixLock&) = delete;
  PosixLock& operator=(const PosixLock&) = delete;
  // The name goes first, while nobody else can have the lock. A forked copy of the holder leaves it alone.
  ~PosixLock() override {
    if (file_ && ::getpid() == holder_) ::unlinkat(directory_->descriptor(), name_.c_str(), 0);
  }
  bool is_exclusive() const override { return exclusive_; }

  void hold(Descriptor file, bool exclusive) noexcept {
    file_.emplace(std::move(file));
    exclusive_ = exclusive;
  }

 private:
  std::shared_ptr<const Directory> directory_;
  std::string name_;
  std::optional<Descriptor> file_;  // when it is held
  bool exclusive_ = false;
  pid_t holder_ = ::getpid();
};

enum class Taken { kYes, kNo, kUnsupported };

Taken take(int fd, const std::string& path) {
  if (CAIRN_BUG("no-lock")) return Taken::kYes;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return Taken::kNo;
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) return Taken::kUnsupported;
    throw Error(ErrorCode::kIo, "cannot lock").in_file(path).with_errno(errno);
  }
  return Taken::kYes;
}

// Whether the name still leads to this file: its last holder removes it, and the next one makes another.
bool is_named(int fd, const Directory& directory, const std::string& name) {
  struct stat mine, named;
  return ::fstat(fd, &mine) == 0 &&
         ::fstatat(directory.descriptor(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

// For messages only: a disk without room for these few bytes keeps nobody from the lock.
void write_holder(int fd) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 300> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "process {} on {}\n", ::getpid(), host.data());
  if (end.size <= largest_file() && ::ftruncate(fd, 0) == 0)
    static_cast<void>(::pwrite(fd, text.data(), end.size, 0) == 0);
}

std::string read_holder(int fd) {
  std::array<char, 300> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view all(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::string_view line = all.substr(0, all.find('\n'));
  const bool readable = std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return line.empty() || !readable ? "somebody else" : std::string(line);
}

}  // namespace

std::unique_ptr<FileLock> posix_lock(const std::shared_ptr<const Directory>& directory,
                                     std::string_view name) {
  const std::string text(name), path = directory->path() + "/" + text;
  std::string holder = "somebody else";
  // Made before the file: there may be no memory for it afterwards, and the file would stay.
  auto lock = std::make_unique<PosixLock>(directory, text);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    constexpr int kFlags = O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC;
    Descriptor file(
        uninterrupted([&] { return ::openat(directory->descriptor(), text.c_str(), kFlags, 0666); }));
    if (file.get() < 0) {
      const int os_error = errno;
      throw Error(ErrorCode::kIo, "cannot open the lock").in_file(path).with_errno(os_error);
    }
    CAIRN_POINT("lock.opened");
    const Taken taken = take(file.get(), path);
    if (taken == Taken::kNo) {
      holder = read_holder(file.get());
      break;
    }
    if (taken == Taken::kYes && !is_named(file.get(), *directory, text)) continue;
    CAIRN_POINT("lock.taken");
    write_holder(file.get());
    lock->hold(std::move(file), taken == Taken::kYes);
    return lock;
  }
  throw Error(ErrorCode::kConflict, fmt::format("{} holds this lock", holder)).in_file(path);
}

}  // namespace cairn
