// One connection of the loopback S3 server's, plain or TLS.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cairn::loopback {

class Wire {
 public:
  // Takes both over; the handshake is made by the first read.
  Wire(int socket, SSL* tls);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // All of them are false when the connection has ended. One thread uses them.
  bool read_head(std::string& head);  // up to and with the empty line, at most 64 KiB
  bool read(std::span<std::byte> to);
  bool skip(std::uint64_t size);
  bool write(const std::vector<std::span<const std::byte>>& parts);
  // Nothing more is sent; what still comes is thrown away until the other one is done, or the connection is
  // cut.
  void finish();
  void close();

  void cut();  // by another thread: whatever is waited for ends

 private:
  std::size_t receive(std::byte* to, std::size_t size);  // 0: ended

  std::mutex mutex_;  // of socket_, against its being closed while it is cut
  int socket_;
  SSL* tls_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(64 << 10);
  std::size_t begin_ = 0;  // what was received and not taken yet
  std::size_t end_ = 0;
};

// What TLS needs: a key and a certificate for 127.0.0.1, localhost and *.s3.localhost, made here, signed by
// itself, and written to the file `bundle`.
SSL_CTX* new_tls(const std::string& bundle);

}  // namespace cairn::loopback
