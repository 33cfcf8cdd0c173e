#include "testing/s3_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <list>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "testing/s3_exchange.h"

namespace cairn {
namespace {

int listen_on(int port) {
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(made, 1024) != 0) {
    const int why = errno;
    ::close(made);
    throw std::system_error(why, std::generic_category(), fmt::format("no server on port {}", port));
  }
  return made;
}

int port_of(int socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

std::string new_bundle() {
  std::string path = std::filesystem::temp_directory_path() / "cairn-s3-server-XXXXXX";
  const int made = ::mkstemp(path.data());
  if (made < 0) throw std::system_error(errno, std::generic_category(), path);
  ::close(made);
  return path;
}

}  // namespace

struct S3Server::State {
  explicit State(S3ServerOptions wanted) : site(std::move(wanted)), listener(listen_on(site.options.port)) {
    port = port_of(listener);
    if (site.options.tls) {
      bundle = new_bundle();
      tls = loopback::new_tls(bundle);
    }
    acceptor = std::thread([this] { accept_all(); });
  }

  ~State() {
    site.stop();
    ::shutdown(listener, SHUT_RDWR);
    acceptor.join();
    for (Connection& connection : connections) connection.wire.cut();
    for (Connection& connection : connections) connection.thread.join();
    connections.clear();
    ::close(listener);
    SSL_CTX_free(tls);
    if (!bundle.empty()) ::unlink(bundle.c_str());
  }

  struct Connection {
    Connection(int socket, SSL* ssl) : wire(socket, ssl) {}
    loopback::Wire wire;
    std::atomic<bool> done = false;
    std::thread thread;
  };

  void accept_all() {
    while (!site.stopping()) {
      const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) {
        if (errno != EINTR) site.pause(std::chrono::milliseconds(1));
        continue;
      }
      const int yes = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      ++opened;
      std::erase_if(connections, [](Connection& old) {
        if (!old.done) return false;
        old.thread.join();
        return true;
      });
      Connection& made = connections.emplace_back(socket, tls == nullptr ? nullptr : SSL_new(tls));
      made.thread = std::thread([this, &made] {
        sigset_t pipe;  // OpenSSL writes without MSG_NOSIGNAL
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
        loopback::serve(made.wire, site);
        made.wire.close();
        made.done = true;
      });
    }
  }

  loopback::Site site;
  int listener;
  int port = 0;
  SSL_CTX* tls = nullptr;
  std::string bundle;
  std::atomic<std::uint64_t> opened = 0;
  std::list<Connection> connections;  // the acceptor's, while it runs
  std::thread acceptor;
};

S3Server::S3Server(S3ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}
S3Server::~S3Server() = default;

std::string S3Server::endpoint() const {
  return fmt::format("{}://127.0.0.1:{}", state_->tls == nullptr ? "http" : "https", state_->port);
}
std::string S3Server::virtual_endpoint() const {
  return fmt::format("{}://s3.localhost:{}", state_->tls == nullptr ? "http" : "https", state_->port);
}
int S3Server::port() const { return state_->port; }
const std::string& S3Server::ca_bundle() const { return state_->bundle; }

std::map<std::string, S3Stored> S3Server::objects(const std::string& bucket) const {
  std::map<std::string, S3Stored> all;
  for (const auto& [key, object] : state_->site.shelf.with_prefix(bucket, "")) {
    S3Stored& stored = all[key];
    for (const loopback::Piece& piece : object->pieces)
      stored.bytes.append(reinterpret_cast<const char*>(piece.bytes.get()), piece.size);
    stored.etag = object->etag;
    stored.modified = object->modified;
    for (const auto& [name, text] : object->metadata)
      stored.metadata[name.substr(std::string_view("x-amz-meta-").size())] = text;
  }
  return all;
}

std::vector<std::string> S3Server::keys(const std::string& bucket) const {
  std::vector<std::string> keys;
  for (const auto& [key, object] : state_->site.shelf.with_prefix(bucket, "")) keys.push_back(key);
  return keys;
}

void S3Server::put(const std::string& key, const std::string& bytes, const std::string& bucket) {
  const loopback::Piece piece = loopback::new_piece(bytes.size());
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), piece.bytes.get());
  state_->site.shelf.put(bucket, key, piece, {}, false, state_->site.now());
}
void S3Server::remove(const std::string& key, const std::string& bucket) {
  state_->site.shelf.remove(bucket, key);
}

std::size_t S3Server::uploads() const { return state_->site.shelf.uploads().size(); }
std::uint64_t S3Server::stored_bytes() const { return state_->site.shelf.stored(); }

void S3Server::set_fault(std::function<S3Fault(const S3Request&)> fault) {
  state_->site.set_fault(std::move(fault));
}
void S3Server::set_keys(std::string access_key, std::string secret_key, std::string session_token) {
  state_->site.set_keys({std::move(access_key), std::move(secret_key), std::move(session_token)});
}
void S3Server::set_clock_ahead(std::chrono::seconds ahead) { state_->site.set_clock_ahead(ahead); }

std::uint64_t S3Server::requests() const {
  std::uint64_t all = 0;
  for (const auto& [kind, count] : requests_by_kind()) all += count;
  return all;
}
std::uint64_t S3Server::requests(const std::string& kind) const {
  const std::map<std::string, std::uint64_t> all = requests_by_kind();
  const auto found = all.find(kind);
  return found == all.end() ? 0 : found->second;
}
std::map<std::string, std::uint64_t> S3Server::requests_by_kind() const { return state_->site.counts(); }
std::uint64_t S3Server::connections() const { return state_->opened; }
int S3Server::most_in_flight() const { return state_->site.most_in_flight(); }
void S3Server::forget_requests() { state_->site.forget_counts(); }

}  // namespace cairn
