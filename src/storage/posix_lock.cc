#include "storage/posix_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/file_limit.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "storage/descriptor.h"

namespace cairn {
namespace {

// How often the file may vanish under our hands before somebody else is said to have the lock.
constexpr int kAttempts = 100;

// The descriptors of the locks that this process holds. A child of fork() shares them, and with them the
// lock, which would outlive its holder: it closes them before it does anything else.
constexpr std::size_t kMostHeld = 4096;
std::array<std::atomic<int>, kMostHeld> held_descriptors;  // the descriptor + 1; 0: free

void close_in_child() {
  for (std::atomic<int>& held : held_descriptors)
    if (const int taken = held.exchange(0); taken != 0) ::close(taken - 1);
}

// A descriptor that no child of fork() has.
class OwnDescriptor {
 public:
  explicit OwnDescriptor(int fd) : fd_(fd), slot_(fd < 0 ? nullptr : note(fd)) {}
  OwnDescriptor(OwnDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), slot_(std::exchange(other.slot_, nullptr)), owner_(other.owner_) {}
  OwnDescriptor& operator=(OwnDescriptor&&) = delete;
  // In a child it is closed already, and the number may be another file's by now.
  ~OwnDescriptor() {
    if (fd_ < 0 || (slot_ != nullptr && ::getpid() != owner_)) return;
    if (slot_ != nullptr) slot_->store(0);
    ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  // Null when there is no room: children share it then.
  static std::atomic<int>* note(int fd) {
    static const int watched = ::pthread_atfork(nullptr, nullptr, close_in_child);
    if (watched != 0) return nullptr;
    for (std::atomic<int>& slot : held_descriptors) {
      int free = 0;
      if (slot.compare_exchange_strong(free, fd + 1)) return &slot;
    }
    return nullptr;
  }

  int fd_;
  std::atomic<int>* slot_;
  pid_t owner_ = ::getpid();
};

// A file that is not there any more; a server says it of one that was open.
bool is_gone(int os_error) { return os_error == ENOENT || os_error == ESTALE; }

// Whether the name still leads to this file: its last holder removes it, and the next one makes another.
bool is_named(int fd, const Directory& directory, const std::string& name) {
  struct stat mine, named;
  if (::fstat(fd, &mine) != 0 ||
      ::fstatat(directory.descriptor(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) {
    if (is_gone(errno)) return false;
    const int os_error = errno;
    throw Error(ErrorCode::kIo, "cannot look at the lock")
        .in_file(directory.path() + "/" + name)
        .with_errno(os_error);
  }
  return mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

// Nothing when it is gone.
std::string read_text(int fd, const std::string& path) {
  std::array<char, 4096> text{};
  const ssize_t got = uninterrupted([&] { return ::pread(fd, text.data(), text.size(), 0); });
  if (got < 0 && is_gone(errno)) return {};
  if (got < 0) throw Error(ErrorCode::kIo, "cannot read who holds the lock").in_file(path).with_errno(errno);
  return {text.data(), static_cast<std::size_t>(got)};
}

// The text of the file of this name now: opened again, because a network file system looks for what others
// wrote when a file is opened.
std::string read_again(const Directory& directory, const std::string& name) {
  const Descriptor file(uninterrupted(
      [&] { return ::openat(directory.descriptor(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
  const std::string path = directory.path() + "/" + name;
  if (file.get() >= 0) return read_text(file.get(), path);
  if (is_gone(errno)) return {};
  throw Error(ErrorCode::kIo, "cannot read who holds the lock").in_file(path).with_errno(errno);
}

enum class Taken { kYes, kNo, kUnsupported };

Taken take(int fd, const std::string& path) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return Taken::kNo;
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) return Taken::kUnsupported;
    throw Error(ErrorCode::kIo, "cannot lock").in_file(path).with_errno(errno);
  }
  return Taken::kYes;
}

std::string first_line(const char* path) {
  const Descriptor file(uninterrupted([&] { return ::open(path, O_RDONLY | O_CLOEXEC); }));
  if (file.get() < 0) return {};
  std::array<char, 4096> text{};
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  const std::string_view all(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return std::string(all.substr(0, all.find('\n')));
}

// Which running system a process number belongs to: the boot, and the namespace. Empty when nobody can tell.
std::string system_of_processes() {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  struct stat status;
  if (boot.empty() || ::stat("/proc/self/ns/pid", &status) != 0) return {};
  return fmt::format("{}/{}", boot, status.st_ino);
}

// When a process began, in the kernel's ticks, and whether it is still more than an entry in a table; nullopt
// when there is none of this number.
struct ProcessState {
  std::string began;
  bool runs = true;
};
std::optional<ProcessState> process_state(long pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid).c_str());
  const std::size_t name_end = stat.rfind(')');  // the name before it may hold anything
  if (name_end == stat.npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  ProcessState state;
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3) state.runs = field != "Z" && field != "X";
    if (i == 22) state.began = field;
  }
  return state;
}

std::string host_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

// One line that says who holds the lock.
std::string holder_text() {
  const auto self = process_state(::getpid());
  return fmt::format("process {} on {}, began {}, system {}\n", ::getpid(), host_name(),
                     self ? self->began : "", system_of_processes());
}

// Whether this process has another descriptor of the lock: one that it could not remove is still named after
// it.
bool is_held_here(int fd) {
  struct stat mine, other;
  if (::fstat(fd, &mine) != 0) return true;
  return std::any_of(held_descriptors.begin(), held_descriptors.end(), [&](const std::atomic<int>& slot) {
    const int held = slot.load() - 1;
    return held >= 0 && held != fd && ::fstat(held, &other) == 0 && mine.st_dev == other.st_dev &&
           mine.st_ino == other.st_ino;
  });
}

// Whether a process that wrote this line into the lock certainly exists no more, or has given it back. What
// no process writes is what a loss of power left of a line.
bool is_dead(std::string_view line, int fd) {
  if (!line.starts_with("process ")) return true;
  const std::size_t began_at = line.rfind(", began "), system_at = line.rfind(", system ");
  if (began_at == line.npos || system_at == line.npos || system_at < began_at) return false;
  const std::string_view began = line.substr(began_at + 8, system_at - began_at - 8);
  const std::string_view system = line.substr(system_at + 9);
  long pid = 0;
  const auto number = std::from_chars(line.data() + 8, line.data() + line.size(), pid);
  if (number.ec != std::errc() || pid <= 0 || began.empty()) return false;
  const std::string here = system_of_processes();
  if (system.empty() || here.empty()) return false;
  const auto boot_of = [](std::string_view text) { return text.substr(0, text.find('/')); };
  const bool on_this_host = line.substr(0, began_at).ends_with(" on " + host_name());
  if (on_this_host && boot_of(system) != boot_of(here)) return true;  // the machine has been started again
  if (system != here) return false;
  const auto now = process_state(pid);
  if (!now) return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
  if (pid == ::getpid() && now->began == began) return !is_held_here(fd);
  return !now->runs || now->began != began;
}

// Whether all who wrote this into the lock are dead.
bool are_dead(std::string_view text, int fd) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return true;  // half a line: whoever lives has written a whole one
    if (!is_dead(text.substr(0, end), fd)) return false;
    text.remove_prefix(end + 1);
  }
  return true;
}

// Adds our line to the file, behind those of others, dead or not: whoever looks at the same time must not
// lose theirs. A disk without room for it keeps nobody from the lock. Returns whether it is there.
bool write_holder(int fd, const std::string& text) {
  const off_t end = ::lseek(fd, 0, SEEK_END);
  if (end < 0 || static_cast<std::uint64_t>(end) + text.size() > largest_file()) return false;
  if (::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return true;
  static_cast<void>(::ftruncate(fd, end) == 0);
  return false;
}

// Whoever fails to take a lock leaves no file behind that nobody holds.
void remove_unheld(int fd, const Directory& directory, const std::string& name) noexcept {
  try {
    struct stat mine;
    if (::fstat(fd, &mine) == 0 && mine.st_size == 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        is_named(fd, directory, name))
      ::unlinkat(directory.descriptor(), name.c_str(), 0);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the failure that led here is the one to tell
  }
}

// For messages: who holds it, as far as that can be shown.
std::string read_holder(int fd, const std::string& path) {
  const std::string all = read_text(fd, path);
  const std::string line = all.substr(0, all.find('\n'));
  const bool readable = std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return line.empty() || !readable ? "somebody else" : line.substr(0, line.rfind(", began "));
}

class PosixLock final : public FileLock {
 public:
  PosixLock(std::shared_ptr<const Directory> directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}
  PosixLock(const PosixLock&) = delete;
  PosixLock& operator=(const PosixLock&) = delete;
  // The name goes first, while nobody else can have the lock. A forked copy of the holder leaves it alone.
  ~PosixLock() override {
    if (file_ && ::getpid() == holder_ && is_last()) ::unlinkat(directory_->descriptor(), name_.c_str(), 0);
  }

  bool is_exclusive() const override {
    if (!locked_ || ::getpid() != holder_ || !is_named(file_->get(), *directory_, name_)) return false;
    const std::optional<std::string> others = others_in(read_again(*directory_, name_));
    return others && are_dead(*others, file_->get());
  }

  // `locked`: flock works here. `text` is what we wrote into it; nothing when there was no room.
  void hold(OwnDescriptor file, bool locked, std::string text) noexcept {
    file_.emplace(std::move(file));
    locked_ = locked;
    text_ = std::move(text);
  }

 private:
  // All but our line; nullopt when that is gone.
  std::optional<std::string> others_in(std::string all) const {
    const std::size_t ours = all.find(text_);
    if (ours == all.npos) return std::nullopt;
    return all.erase(ours, text_.size());
  }

  // Where others that may live have written too, only our line goes.
  bool is_last() const noexcept {
    try {
      if (!is_named(file_->get(), *directory_, name_)) return false;
      const std::optional<std::string> others = others_in(read_text(file_->get(), name_));
      if (others && are_dead(*others, file_->get())) return true;
      if (others && ::ftruncate(file_->get(), 0) == 0)
        static_cast<void>(::write(file_->get(), others->data(), others->size()) == 0);
      return false;
    } catch (...) {
      return locked_;  // it cannot be read, or there is no memory to look
    }
  }

  std::shared_ptr<const Directory> directory_;
  std::string name_;
  std::optional<OwnDescriptor> file_;  // when it is held
  bool locked_ = false;
  std::string text_;
  pid_t holder_ = ::getpid();
};

}  // namespace

std::unique_ptr<FileLock> posix_lock(const std::shared_ptr<const Directory>& directory,
                                     std::string_view name) {
  const std::string text(name), path = directory->path() + "/" + text;
  std::string holder = "somebody else";
  // Made before the file: there may be no memory for it afterwards, and the file would stay.
  auto lock = std::make_unique<PosixLock>(directory, text);
  std::string mine = holder_text();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    constexpr int kFlags = O_CREAT | O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
    OwnDescriptor file(
        uninterrupted([&] { return ::openat(directory->descriptor(), text.c_str(), kFlags, 0666); }));
    if (file.get() < 0) {
      const int os_error = errno;
      // A mount can find the name of another machine's lock, and open it when it is gone.
      if (is_gone(os_error) && attempt + 1 < kAttempts) continue;
      throw Error(ErrorCode::kIo, "cannot open the lock").in_file(path).with_errno(os_error);
    }
    try {
      CAIRN_POINT("lock.opened");
      const Taken taken = take(file.get(), path);
      if (taken == Taken::kNo) {
        holder = read_holder(file.get(), path);
        break;
      }
      if (taken == Taken::kYes && !is_named(file.get(), *directory, text)) continue;
      CAIRN_POINT("lock.taken");
      // What is in it already is of a holder that died, or flock ends at this machine.
      if (!write_holder(file.get(), mine)) mine.clear();
      lock->hold(std::move(file), taken == Taken::kYes, std::move(mine));
      return lock;
    } catch (...) {
      remove_unheld(file.get(), *directory, text);
      throw;
    }
  }
  throw Error(ErrorCode::kConflict, fmt::format("{} holds this lock", holder)).in_file(path);
}

}  // namespace cairn
