// What there is to gain at an S3 server: the same bytes with no checkpoint. bench/parts/s3.py calls it.
//
//   s3_raw curl|sockets put|get|drop ENDPOINT BYTES CONNECTIONS
//
// Objects of 64 MiB in the bucket "bench", over so many connections at once, each on a thread of its own;
// neither signed nor checked. `put` and `get` from and into memory that is there; `drop` gets and throws
// away. `curl` is bare libcurl with its largest buffers (https: AWS_CA_BUNDLE), `sockets` is HTTP written by
// hand. Prints the best of three as one JSON object; nothing without arguments.
#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "s3/cost.h"

namespace {

using namespace cairn;

constexpr std::size_t kObjectBytes = 64 << 20;

enum class Verb : std::uint8_t { kPut, kGet, kDrop };

using Memory = std::span<char>;

void check(bool good, std::string_view what) {
  if (!good) throw std::runtime_error(std::string(what));
}

std::string path_of(std::size_t object) { return fmt::format("/bench/raw/{}", object); }

// One connection, through libcurl.
class CurlConnection {
 public:
  CurlConnection(Verb verb, std::string endpoint) : verb_(verb), endpoint_(std::move(endpoint)) {
    set(CURLOPT_UPLOAD_BUFFERSIZE, 2L << 20);
    set(CURLOPT_BUFFERSIZE, static_cast<long>(CURL_MAX_READ_SIZE));
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_READFUNCTION, &CurlConnection::on_read);
    set(CURLOPT_WRITEFUNCTION, &CurlConnection::on_write);
    set(CURLOPT_READDATA, this);
    set(CURLOPT_WRITEDATA, this);
    if (const char* const bundle = std::getenv("AWS_CA_BUNDLE"); bundle != nullptr && *bundle != 0)
      set(CURLOPT_CAINFO, bundle);
  }
  ~CurlConnection() { curl_easy_cleanup(easy_); }
  CurlConnection(const CurlConnection&) = delete;
  CurlConnection& operator=(const CurlConnection&) = delete;

  void move(std::size_t object, Memory memory) {
    left_ = memory;
    const std::string url = endpoint_ + path_of(object);
    set(CURLOPT_URL, url.c_str());
    if (verb_ == Verb::kPut) {
      set(CURLOPT_UPLOAD, 1L);
      set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(memory.size()));
    }
    const CURLcode code = curl_easy_perform(easy_);
    check(code == CURLE_OK, curl_easy_strerror(code));
    check(left_.empty(), "the object has another size");
  }

 private:
  template <class Value> void set(CURLoption option, Value value) {
    check(curl_easy_setopt(easy_, option, value) == CURLE_OK, "libcurl does not take an option");
  }

  static std::size_t on_read(char* to, std::size_t size, std::size_t count, void* self) {
    Memory& left = static_cast<CurlConnection*>(self)->left_;
    const std::size_t n = std::min(size * count, left.size());
    std::memcpy(to, left.data(), n);
    left = left.subspan(n);
    return n;
  }
  static std::size_t on_write(char* from, std::size_t size, std::size_t count, void* self) {
    auto& connection = *static_cast<CurlConnection*>(self);
    const std::size_t n = size * count;
    if (n > connection.left_.size()) return 0;
    if (connection.verb_ == Verb::kGet) std::memcpy(connection.left_.data(), from, n);
    connection.left_ = connection.left_.subspan(n);
    return n;
  }

  const Verb verb_;
  const std::string endpoint_;
  CURL* const easy_ = curl_easy_init();
  Memory left_;
};

// One connection, by hand.
class SocketConnection {
 public:
  SocketConnection(Verb verb, const std::string& endpoint) : verb_(verb), buffer_(64 << 10) {
    const std::string_view scheme = "http://";
    check(endpoint.starts_with(scheme), "sockets speak http only");
    host_ = endpoint.substr(scheme.size());
    const std::size_t colon = host_.find(':');
    check(colon != std::string::npos, "an endpoint has a port");
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(host_.substr(colon + 1))));
    check(inet_pton(AF_INET, host_.substr(0, colon).c_str(), &address.sin_addr) == 1, "not an address");
    check(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
          "no connection");
    const int yes = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  ~SocketConnection() { close(socket_); }
  SocketConnection(const SocketConnection&) = delete;
  SocketConnection& operator=(const SocketConnection&) = delete;

  void move(std::size_t object, Memory memory) {
    const bool puts = verb_ == Verb::kPut;
    const std::string head =
        fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", puts ? "PUT" : "GET",
                    path_of(object), host_, puts ? memory.size() : 0);
    send_all(head);
    if (puts) send_all({memory.data(), memory.size()});
    const std::size_t early = receive_head();
    if (puts) return check(early == 0, "a PUT was answered with a body");
    check(early <= memory.size(), "the object has another size");
    std::memcpy(memory.data(), buffer_.data(), early);
    for (Memory left = memory.subspan(early); !left.empty();) left = left.subspan(receive(left));
  }

 private:
  void send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      check(sent > 0, "the connection broke");
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  std::size_t receive(Memory to) {
    const ssize_t got = recv(socket_, to.data(), to.size(), 0);
    check(got > 0, "the connection broke");
    return static_cast<std::size_t>(got);
  }
  // How much of the body came with it; that lies at the front of the buffer.
  std::size_t receive_head() {
    for (std::size_t there = 0;;) {
      there += receive(Memory(buffer_).subspan(there));
      const std::string_view text(buffer_.data(), there);
      const std::size_t end = text.find("\r\n\r\n");
      if (end == std::string_view::npos) continue;
      check(text.starts_with("HTTP/1.1 200"), "the server says no");
      std::memmove(buffer_.data(), buffer_.data() + end + 4, there - end - 4);
      return there - end - 4;
    }
  }

  const Verb verb_;
  std::string host_;
  std::vector<char> buffer_;
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

// All objects once; a connection takes the next one when it has done one. The connections stay.
template <class Connection>
Cost move_all(Verb verb, const std::string& endpoint, Memory memory, int connections) {
  std::vector<std::unique_ptr<Connection>> open;
  for (int i = 0; i < connections; ++i) open.push_back(std::make_unique<Connection>(verb, endpoint));
  return least_cost(kRepetitions, [&](int) {
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::exception_ptr failure;
    std::vector<std::thread> threads;
    for (const auto& connection : open)
      threads.emplace_back([&, mine = connection.get()] {
        try {
          for (std::size_t i = next++; i * kObjectBytes < memory.size(); i = next++) {
            const std::size_t at = i * kObjectBytes;
            mine->move(i, memory.subspan(at, std::min(kObjectBytes, memory.size() - at)));
          }
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (failure != nullptr) std::rethrow_exception(failure);
  });
}

int run(const std::vector<std::string>& args) {
  if (args.size() != 5) return 2;
  const Verb verb = args[1] == "put" ? Verb::kPut : args[1] == "get" ? Verb::kGet : Verb::kDrop;
  Tensor tensor = filled(static_cast<std::int64_t>(std::stoull(args[3])));
  const Memory memory(reinterpret_cast<char*>(tensor.bytes().data()), tensor.bytes().size());
  const int connections = std::stoi(args[4]);
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const Cost cost = args[0] == "curl" ? move_all<CurlConnection>(verb, args[2], memory, connections)
                                      : move_all<SocketConnection>(verb, args[2], memory, connections);
  fmt::print("{{{}}}\n", json_of(cost));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return 0;
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print(stderr, "s3_raw: {}\n", e.what());
    return 1;
  }
}
