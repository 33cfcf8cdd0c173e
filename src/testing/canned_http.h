// A loopback HTTP server whose answers a test makes up; one request after the other, each on a connection of
// its own.
//
//   CannedHttp server([](const CannedRequest& request) -> CannedAnswer {
//     if (request.line == "GET /token") return {200, "text"};
//     return {404, ""};
//   });
//   get(server.url() + "/token");
//   EXPECT_EQ(server.requests().size(), 1U);
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {

struct CannedRequest {
  std::string line;  // "GET /token"
  std::string head;  // all lines of it, as they came
  std::string body;

  // Whether the head has that line: "x-name: value".
  bool has(const std::string& header) const { return head.find("\r\n" + header + "\r\n") != head.npos; }
};

struct CannedAnswer {
  int status = 200;  // 0: none, the connection is closed
  std::string body = {};
};

class CannedHttp {
 public:
  using Answer = std::function<CannedAnswer(const CannedRequest&)>;

  explicit CannedHttp(Answer answer) : answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || ::bind(listener_, plain, size) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, plain, &size) != 0)
      throw std::runtime_error("cannot listen on the loopback");
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  CannedHttp(const CannedHttp&) = delete;
  CannedHttp& operator=(const CannedHttp&) = delete;
  ~CannedHttp() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  const std::string& url() const { return url_; }
  std::vector<CannedRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    for (int socket = ::accept(listener_, nullptr, nullptr); socket >= 0;
         socket = ::accept(listener_, nullptr, nullptr)) {
      const timeval patience{.tv_sec = 30, .tv_usec = 0};
      ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
      one(socket);
      ::close(socket);
    }
  }

  void one(int socket) {
    std::string text;
    std::size_t head = text.npos;
    while ((head = text.find("\r\n\r\n")) == text.npos)
      if (!more(socket, text)) return;
    CannedRequest request;
    request.line = text.substr(0, text.find(" HTTP/"));
    request.head = text.substr(0, head + 2);
    const std::size_t length = request.head.find("\r\nContent-Length: ");
    const std::size_t body = length == text.npos ? 0 : std::strtoul(&request.head[length + 18], nullptr, 10);
    while (text.size() < head + 4 + body)
      if (!more(socket, text)) return;
    request.body = text.substr(head + 4);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const CannedAnswer answer = answer_(request);
    if (answer.status == 0) return;
    const std::string out =
        "HTTP/1.1 " + std::to_string(answer.status) +
        " Canned\r\nConnection: close\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n" +
        answer.body;
    (void)::send(socket, out.data(), out.size(), MSG_NOSIGNAL);
  }

  static bool more(int socket, std::string& text) {
    char buffer[4096];
    const ssize_t n = ::recv(socket, buffer, sizeof(buffer), 0);
    if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }

  Answer answer_;
  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string url_;
  mutable std::mutex mutex_;
  std::vector<CannedRequest> requests_;
  std::thread thread_;
};

}  // namespace cairn
