#include "storage/file_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file_limit.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "storage/page_cache.h"

namespace cairn {
namespace {

constexpr const char* kReading = "cannot read";
constexpr const char* kWriting = "cannot write";
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // the kernel moves a little under 2 GiB

// A second descriptor of the same file that goes past the page cache; -1 where there is none. Whoever opens a
// pipe anew waits until somebody writes into it: only a file has one.
int open_direct(int fd, IoPath io, bool in_memory) {
  // There is no way past the page cache for what lives in it, whatever open() says.
  if (io == IoPath::kBuffered || in_memory) return -1;
  struct stat status;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return -1;
  return ::open(fmt::format("/proc/self/fd/{}", fd).c_str(), (flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC);
}

}  // namespace

FileChannel::FileChannel(Descriptor fd, std::string path, IoPath io, std::shared_ptr<UringPool> rings)
    : buffered_(std::move(fd)),
      in_memory_(lives_in_memory(buffered_.get())),
      direct_(open_direct(buffered_.get(), io, in_memory_)),
      use_direct_(direct_.get() >= 0),
      path_(std::move(path)) {
  if (use_direct_ && io != IoPath::kDirect) rings_ = std::move(rings);
}

void FileChannel::close() {
  if (direct_.get() >= 0 && ::close(direct_.release()) != 0) fail("cannot close", 0, errno);
  if (::close(buffered_.release()) != 0) fail("cannot close", 0, errno);
}

void FileChannel::fail(const char* what, std::uint64_t offset, int os_error) const {
  // A server lets go what nobody names any more: who reads on learns that it is gone.
  const bool gone = what == kReading && os_error == ESTALE;
  throw Error(gone ? ErrorCode::kNotFound : ErrorCode::kIo, what)
      .in_file(path_)
      .at(offset)
      .with_errno(os_error);
}

// How many bytes from the front can go past the page cache.
std::size_t FileChannel::aligned_part(const void* address, std::uint64_t offset, std::size_t size) const {
  const bool aligned = (reinterpret_cast<std::uintptr_t>(address) | offset) % kDirectAlignment == 0;
  return use_direct_ && aligned ? size / kDirectAlignment * kDirectAlignment : 0;
}

// Asking with each read (RWF_NOWAIT) would start a read-ahead that competes with the direct read.
void FileChannel::use_cache_if_warm(std::uint64_t size) {
  if (use_direct_ && size >= kDirectAlignment && is_cached(buffered_.get(), size)) use_direct_ = false;
}

// Whether a direct transfer that moved `moved` bytes may be followed by another; throws when it failed.
bool FileChannel::goes_on(const char* what, std::uint64_t offset, std::size_t moved, int os_error) {
  if (os_error == EINTR || os_error == EAGAIN) return true;
  if (os_error != 0 && os_error != EINVAL) fail(what, offset + moved, os_error);
  // EINVAL: this file system wants another alignment. Less than a block: the end is near.
  return os_error == 0 && moved >= kDirectAlignment;
}

std::size_t FileChannel::read_direct(std::uint64_t offset, std::span<std::byte> to) {
  int os_error = EAGAIN;
  std::size_t got = 0;
  if (rings_ != nullptr) got = rings_->read(direct_.get(), offset, to.data(), to.size(), os_error);
  if (got == 0 && os_error == EAGAIN) {
    const ssize_t n = ::pread(direct_.get(), to.data(), to.size(), static_cast<off_t>(offset));
    os_error = n < 0 ? errno : 0;
    got = n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  if (!goes_on(kReading, offset, got, os_error)) use_direct_ = false;
  return got;
}

void FileChannel::read(std::uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    std::size_t got = 0;
    if (const std::size_t body = aligned_part(to.data(), offset, to.size()); body > 0) {
      const std::span<std::byte> part = to.first(std::min(body, kMostAtOnce));
      got = read_direct(offset, part);
    } else {
      const ssize_t n =
          ::pread(buffered_.get(), to.data(), std::min(to.size(), kMostAtOnce), static_cast<off_t>(offset));
      if (n == 0) break;
      if (n < 0 && errno != EINTR) fail(kReading, offset, errno);
      if (n > 0) got = static_cast<std::size_t>(n);
    }
    offset += got;
    to = to.subspan(got);
  }
  if (to.empty()) return;
  throw Error(ErrorCode::kCorrupt, fmt::format("the file ends {} bytes early", to.size()))
      .in_file(path_)
      .at(offset);
}

std::size_t FileChannel::write_direct(std::uint64_t offset, std::span<const std::byte> bytes) {
  int os_error = EAGAIN;
  std::size_t put = 0;
  if (rings_ != nullptr) put = rings_->write(direct_.get(), offset, bytes.data(), bytes.size(), os_error);
  if (put == 0 && os_error == EAGAIN) {
    const ssize_t n = ::pwrite(direct_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    os_error = n < 0 ? errno : 0;
    put = n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  if (!goes_on(kWriting, offset, put, os_error)) use_direct_ = false;
  return put / kDirectAlignment * kDirectAlignment;  // what follows must begin with a block again
}

void FileChannel::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t most = largest_file();
  if (offset > most || bytes.size() > most - offset) fail(kWriting, std::max(offset, most), EFBIG);
  while (!bytes.empty()) {
    std::size_t put = 0;
    if (const std::size_t body = aligned_part(bytes.data(), offset, bytes.size()); body > 0) {
      put = write_direct(offset, bytes.first(std::min(body, kMostAtOnce)));
    } else {
      const std::size_t size = std::min(bytes.size(), kMostAtOnce);
      const ssize_t n = ::pwrite(buffered_.get(), bytes.data(), size, static_cast<off_t>(offset));
      if (n == 0) fail(kWriting, offset, EIO);
      if (n < 0 && errno != EINTR) fail(kWriting, offset, errno);
      if (n > 0) put = static_cast<std::size_t>(n);
    }
    offset += put;
    bytes = bytes.subspan(put);
  }
}

}  // namespace cairn
