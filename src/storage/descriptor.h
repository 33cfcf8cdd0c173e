// A file descriptor that is closed on every way out; calls that signals may interrupt.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace cairn {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }  // the caller closes it

 private:
  int fd_;
};

// What a system call returns once no signal interrupts it. Not for fsync and close, which must not be
// repeated.
template <class Call> auto uninterrupted(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace cairn
