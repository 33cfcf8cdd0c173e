#include "group/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "cairn/error.h"

namespace cairn {
namespace {

constexpr int kBacklog = 1024;

// A bit for each descriptor that is a Socket of this process. Those beyond the end are shared with children.
constexpr int kMostDescriptors = 1 << 16;
std::array<std::atomic<std::uint64_t>, kMostDescriptors / 64> own_descriptors;

std::uint64_t bit_of(int fd) { return std::uint64_t{1} << (fd % 64); }

void close_sockets_in_child() {
  for (std::size_t word = 0; word < own_descriptors.size(); ++word) {
    const std::uint64_t bits = own_descriptors[word].exchange(0);
    for (int bit = 0; bits >> bit != 0 && bit < 64; ++bit)
      if ((bits >> bit & 1) != 0) ::close(static_cast<int>(word) * 64 + bit);
  }
}

void note_socket(int fd) {
  static const int watched = ::pthread_atfork(nullptr, nullptr, close_sockets_in_child);
  if (watched == 0 && fd < kMostDescriptors)
    own_descriptors[static_cast<std::size_t>(fd) / 64].fetch_or(bit_of(fd));
}

[[noreturn]] void fail_socket(const char* what) {
  throw Error(ErrorCode::kIo, std::string("ranks cannot talk over TCP: ") + what).with_errno(errno);
}

void set(const Socket& socket, int level, int option, int value) {
  (void)::setsockopt(socket.get(), level, option, &value, sizeof(value));
}

// Letters are whole when they are sent; a host that vanished is noticed within a minute, also by a rank that
// has nothing to say.
void prepare_connection(const Socket& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

template <class Address> const Address& as(const sockaddr* address) {
  return *reinterpret_cast<const Address*>(address);
}

}  // namespace

Socket::Socket(int fd) : fd_(fd), owner_(::getpid()) {
  if (fd >= 0) note_socket(fd);
}

Socket::~Socket() {
  // In a child it is closed already, and the number may be another file's by now.
  if (fd_ < 0 || owner_ != ::getpid()) return;
  if (fd_ < kMostDescriptors) own_descriptors[static_cast<std::size_t>(fd_) / 64].fetch_and(~bit_of(fd_));
  ::close(fd_);
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size) : size_(size) {
  std::memcpy(&storage_, address, std::min<std::size_t>(size, sizeof(storage_)));
  if (address->sa_family != AF_INET6) return;
  const auto six = as<sockaddr_in6>(get());
  if (!IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  std::memcpy(&four.sin_addr, &six.sin6_addr.s6_addr[12], 4);
  storage_ = {};
  std::memcpy(&storage_, &four, sizeof(four));
  size_ = sizeof(four);
}

std::optional<SocketAddress> SocketAddress::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || port == 0) return std::nullopt;
  const bool is_six = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_six) host = host.substr(1, host.size() - 2);
  const std::string name(host);
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(port);
  if (!is_six && ::inet_pton(AF_INET, name.c_str(), &four.sin_addr) == 1)
    return SocketAddress(reinterpret_cast<const sockaddr*>(&four), sizeof(four));
  if (is_six && ::inet_pton(AF_INET6, name.c_str(), &six.sin6_addr) == 1)
    return SocketAddress(reinterpret_cast<const sockaddr*>(&six), sizeof(six));
  return std::nullopt;
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage_.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &as<sockaddr_in>(get()).sin_addr, host, sizeof(host));
    return fmt::format("{}:{}", host, port());
  }
  ::inet_ntop(AF_INET6, &as<sockaddr_in6>(get()).sin6_addr, host, sizeof(host));
  return fmt::format("[{}]:{}", host, port());
}

bool SocketAddress::is_internet() const {
  return storage_.ss_family == AF_INET || storage_.ss_family == AF_INET6;
}

bool SocketAddress::is_loopback() const {
  if (storage_.ss_family == AF_INET) return ntohl(as<sockaddr_in>(get()).sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&as<sockaddr_in6>(get()).sin6_addr);
}

bool SocketAddress::is_link_local() const {
  if (storage_.ss_family == AF_INET) return ntohl(as<sockaddr_in>(get()).sin_addr.s_addr) >> 16 == 0xa9fe;
  return IN6_IS_ADDR_LINKLOCAL(&as<sockaddr_in6>(get()).sin6_addr);
}

std::uint16_t SocketAddress::port() const {
  return ntohs(storage_.ss_family == AF_INET ? as<sockaddr_in>(get()).sin_port
                                             : as<sockaddr_in6>(get()).sin6_port);
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
  SocketAddress other = *this;
  auto* const address = reinterpret_cast<sockaddr*>(&other.storage_);
  if (storage_.ss_family == AF_INET)
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  return other;
}

bool SocketAddress::is_same_host(const SocketAddress& other) const {
  if (storage_.ss_family != other.storage_.ss_family) return false;
  if (storage_.ss_family == AF_INET)
    return as<sockaddr_in>(get()).sin_addr.s_addr == as<sockaddr_in>(other.get()).sin_addr.s_addr;
  return std::memcmp(&as<sockaddr_in6>(get()).sin6_addr, &as<sockaddr_in6>(other.get()).sin6_addr,
                     sizeof(in6_addr)) == 0;
}

std::vector<SocketAddress> addresses_of_host(std::uint16_t port, std::size_t most) {
  std::vector<SocketAddress> near, far;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, ::freeifaddrs);
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
      const int family = one->ifa_addr->sa_family;
      if (family != AF_INET && family != AF_INET6) continue;
      const SocketAddress address(one->ifa_addr,
                                  family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (address.is_link_local()) continue;
      (address.is_loopback() ? near : far).push_back(address.with_port(port));
    }
  }
  // Where the system does not say, ranks of one host can still find each other.
  if (near.empty()) near.push_back(*SocketAddress::parse(fmt::format("127.0.0.1:{}", port)));
  if (far.size() >= most) far.resize(most - 1);
  far.push_back(near.front());
  return far;
}

Socket listen_anywhere() {
  const int kind = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  Socket six(::socket(AF_INET6, kind, 0));
  if (six) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    set(six, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(six.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0 &&
        ::listen(six.get(), kBacklog) == 0)
      return six;
  }
  Socket four(::socket(AF_INET, kind, 0));
  if (!four) fail_socket("no socket");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  if (::bind(four.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)) != 0 ||
      ::listen(four.get(), kBacklog) != 0)
    fail_socket("no port to listen on");
  return four;
}

SocketAddress local_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&address), size};
}

SocketAddress remote_address(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&address), size};
}

Socket dial(const SocketAddress& address) {
  Socket socket(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  prepare_connection(socket);
  if (::connect(socket.get(), address.get(), address.size()) == 0 || errno == EINPROGRESS) return socket;
  const int why = errno;
  socket = Socket();
  errno = why;
  return socket;
}

int connect_error(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) prepare_connection(socket);
  return socket;
}

Socket make_alarm() {
  Socket alarm(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!alarm) fail_socket("no descriptor");
  return alarm;
}

void ring(const Socket& alarm) { (void)::eventfd_write(alarm.get(), 1); }

void hush(const Socket& alarm) {
  eventfd_t rung = 0;
  (void)::eventfd_read(alarm.get(), &rung);
}

}  // namespace cairn
