// A Group of forked processes, over sockets: cheap to start, and any of them can be killed.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "group/mail.h"

namespace cairn {

// The sockets of all pairs of ranks, made before they are forked.
class Sockets {
 public:
  explicit Sockets(int ranks) : ranks_(ranks), ends_(static_cast<std::size_t>(ranks * ranks), -1) {
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) {
        std::array<int, 2> pair{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) != 0)
          throw std::runtime_error("no sockets");
        end(a, b) = pair[0];
        end(b, a) = pair[1];
      }
    }
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() { close_all_but(-1); }

  int& end(int mine, int theirs) { return ends_[static_cast<std::size_t>(mine * ranks_ + theirs)]; }
  // Others learn that a rank is dead only when nobody else holds its ends.
  void close_all_but(int rank) {
    for (int a = 0; a < ranks_; ++a) {
      for (int b = 0; b < ranks_; ++b) {
        if (a != rank && end(a, b) >= 0) ::close(std::exchange(end(a, b), -1));
      }
    }
  }

 private:
  int ranks_;
  std::vector<int> ends_;
};

class SocketMail final : public Mail {
 public:
  SocketMail(Sockets& sockets, int rank) : sockets_(sockets), rank_(rank) {}

  void send(int to, std::string bytes, const Step& step) override {
    std::array<std::uint64_t, 2> head{step.number, bytes.size()};
    std::string all(reinterpret_cast<const char*>(head.data()), sizeof head);
    all += bytes;
    for (std::size_t done = 0; done < all.size();) {
      const ssize_t n = ::send(sockets_.end(rank_, to), all.data() + done, all.size() - done, MSG_NOSIGNAL);
      if (n > 0) done += static_cast<std::size_t>(n);
      if (n < 0 && errno == EAGAIN) wait(to, POLLOUT, step);
      if (n < 0 && errno != EAGAIN && errno != EINTR) fail_gone(to);
    }
  }

  std::string receive(int from, const Step& step) override {
    for (;;) {
      std::array<std::uint64_t, 2> head{};
      read(from, reinterpret_cast<char*>(head.data()), sizeof head, step);
      std::string bytes(head[1], '\0');
      read(from, bytes.data(), bytes.size(), step);
      if (head[0] > step.number) fail_ahead(from, head[0]);
      if (head[0] == step.number) return bytes;
    }
  }

 private:
  void read(int from, char* to, std::size_t size, const Step& step) {
    for (std::size_t done = 0; done < size;) {
      const ssize_t n = ::recv(sockets_.end(rank_, from), to + done, size - done, 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) fail_gone(from);
      if (n > 0) done += static_cast<std::size_t>(n);
      if (n < 0 && errno == EAGAIN) wait(from, POLLIN, step);
    }
  }

  void wait(int other, short events, const Step& step) {
    const auto left = step.deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) fail_late(other);
    pollfd ready{sockets_.end(rank_, other), events, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
    ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(ms, 1000)));
  }

  Sockets& sockets_;
  int rank_;
};

}  // namespace cairn
