// One request on one of libcurl's easy handles: what the handle is told, and what it calls back.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>

#include "storage/s3/http.h"
#include "storage/s3/libraries.h"

namespace cairn::s3 {

// A handle with all that is the same for every request. It keeps its buffers, and so is worth keeping.
CURL* new_easy(const HttpOptions& options);

class Transfer {
 public:
  using Clock = std::chrono::steady_clock;

  // Error(kInvalidArgument) for a header that would be two.
  Transfer(Exchange& exchange, Clock::time_point not_before);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Tells the handle, which calls this object until it is released.
  void take(CURL* easy, Clock::time_point now);
  CURL* release();

  Exchange& exchange() const { return exchange_; }
  Clock::time_point not_before() const { return not_before_; }
  bool begun() const { return easy_ != nullptr; }

  // Whether bytes have moved since it was asked last, or somebody is still to be connected to.
  bool silent_since(Clock::time_point now, std::chrono::milliseconds silence);

  // Fills in what came back. An exception that a callback met is thrown again.
  void end(CURLcode code);
  void end(Exchange::Outcome outcome, std::string_view why);

 private:
  static std::size_t on_read(char* to, std::size_t size, std::size_t count, void* self);
  static int on_seek(void* self, curl_off_t offset, int origin);
  static std::size_t on_write(char* from, std::size_t size, std::size_t count, void* self);
  static std::size_t on_header(char* from, std::size_t size, std::size_t count, void* self);
  static int on_request(void* self, char* to, char* from, int to_port, int from_port);

  std::size_t send(std::span<std::byte> to);
  void receive(std::string_view bytes);
  void receive_header(std::string_view line);
  void fail(std::string_view why);

  friend CURL* new_easy(const HttpOptions& options);

  struct FreeList {
    void operator()(curl_slist* list) const { curl().slist_free_all(list); }
  };

  Exchange& exchange_;
  Clock::time_point not_before_;
  std::unique_ptr<curl_slist, FreeList> headers_;
  std::uint64_t body_size_ = 0;
  CURL* easy_ = nullptr;

  std::size_t span_ = 0;     // where sending is: in this one
  std::size_t in_span_ = 0;  // at this byte
  int requests_ = 0;         // how often libcurl began to send it
  bool again_ = false;       // it wanted to send it once more, by itself
  std::size_t header_bytes_ = 0;
  std::string_view too_long_;  // why, when it is
  std::exception_ptr failure_;

  std::uint64_t moved_ = 0;
  Clock::time_point moved_at_;
  std::array<char, CURL_ERROR_SIZE> error_ = {};
};

}  // namespace cairn::s3
