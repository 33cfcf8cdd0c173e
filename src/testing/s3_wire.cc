#include "testing/s3_wire.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace cairn::loopback {

Wire::Wire(int socket, SSL* tls) : socket_(socket), tls_(tls) {
  if (tls_ == nullptr) return;
  SSL_set_fd(tls_, socket_);
  SSL_set_accept_state(tls_);
}

Wire::~Wire() {
  close();
  SSL_free(tls_);
}

std::size_t Wire::receive(std::byte* to, std::size_t size) {
  if (tls_ != nullptr) {
    std::size_t got = 0;
    return SSL_read_ex(tls_, to, size, &got) == 1 ? got : 0;
  }
  for (;;) {
    const ssize_t got = ::recv(socket_, to, size, 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return 0;
  }
}

bool Wire::read_head(std::string& head) {
  head.clear();
  for (;;) {
    const std::string_view there(reinterpret_cast<const char*>(buffer_.data()) + begin_, end_ - begin_);
    if (const std::size_t end = there.find("\r\n\r\n"); end != std::string_view::npos) {
      head = there.substr(0, end + 4);
      begin_ += end + 4;
      return true;
    }
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) return false;
    const std::size_t got = receive(buffer_.data() + end_, buffer_.size() - end_);
    if (got == 0) return false;
    end_ += got;
  }
}

bool Wire::read(std::span<std::byte> to) {
  const std::size_t there = std::min(to.size(), end_ - begin_);
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), there, to.begin());
  begin_ += there;
  for (to = to.subspan(there); !to.empty();) {
    const std::size_t got = receive(to.data(), to.size());
    if (got == 0) return false;
    to = to.subspan(got);
  }
  return true;
}

bool Wire::skip(std::uint64_t size) {
  std::vector<std::byte> waste(std::min<std::uint64_t>(size, 64 << 10));
  for (; size > 0; size -= std::min<std::uint64_t>(size, waste.size()))
    if (!read(std::span(waste).first(std::min<std::uint64_t>(size, waste.size())))) return false;
  return true;
}

bool Wire::write(const std::vector<std::span<const std::byte>>& parts) {
  if (tls_ != nullptr) {
    for (const auto& part : parts) {
      std::size_t sent = 0;
      if (!part.empty() && SSL_write_ex(tls_, part.data(), part.size(), &sent) != 1) return false;
    }
    return true;
  }
  std::vector<iovec> left;
  for (const auto& part : parts)
    if (!part.empty()) left.push_back({const_cast<std::byte*>(part.data()), part.size()});
  for (std::size_t at = 0; at < left.size();) {
    msghdr message = {};
    message.msg_iov = left.data() + at;
    message.msg_iovlen = std::min<std::size_t>(left.size() - at, 64);
    const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    for (auto gone = static_cast<std::size_t>(sent); gone > 0;) {
      const std::size_t here = std::min(gone, left[at].iov_len);
      left[at].iov_base = static_cast<char*>(left[at].iov_base) + here;
      left[at].iov_len -= here;
      gone -= here;
      if (left[at].iov_len == 0) ++at;
    }
  }
  return true;
}

void Wire::finish() {
  if (tls_ != nullptr) SSL_shutdown(tls_);
  ::shutdown(socket_, SHUT_WR);
  while (::recv(socket_, buffer_.data(), buffer_.size(), 0) > 0) continue;
}

void Wire::close() {
  const std::lock_guard lock(mutex_);
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Wire::cut() {
  const std::lock_guard lock(mutex_);
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

}  // namespace cairn::loopback
