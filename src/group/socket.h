// Sockets that never wait, and the addresses of this host.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

// A descriptor that is closed when it goes, and that no child of fork() keeps: one that did would hold a
// connection open whose rank has died.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), owner_(other.owner_) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~Socket();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
  pid_t owner_ = 0;
};

// One that can be connected to.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size);  // an IPv4 address in IPv6's clothes is IPv4

  // "10.0.0.7:41234", "[2001:db8::7]:41234"; nothing for anything else.
  static std::optional<SocketAddress> parse(std::string_view text);
  std::string text() const;

  bool is_internet() const;  // IPv4 or IPv6
  bool is_loopback() const;
  bool is_link_local() const;  // means nothing on another host
  SocketAddress with_port(std::uint16_t port) const;
  std::uint16_t port() const;
  bool is_same_host(const SocketAddress& other) const;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// Those of all networks that are up, the loopback's last; at most `most`.
std::vector<SocketAddress> addresses_of_host(std::uint16_t port, std::size_t most);

// On a port that the system picks, for IPv6 and IPv4. Error(kIo).
Socket listen_anywhere();
SocketAddress local_address(const Socket& socket);
SocketAddress remote_address(const Socket& socket);

// Begins to connect; writable when that has ended. None, and errno, when it cannot even begin.
Socket dial(const SocketAddress& address);
int connect_error(const Socket& socket);  // how it ended; 0: connected

// None, and errno, when nobody waits or no descriptor is left.
Socket accept_from(const Socket& listener);

// For others to be woken while they wait for sockets. Error(kIo).
Socket make_alarm();
void ring(const Socket& alarm);
void hush(const Socket& alarm);

}  // namespace cairn
