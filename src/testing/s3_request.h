// A request as it came to the loopback S3 server, whether it may, and what is answered to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "testing/s3_server.h"
#include "testing/s3_shelf.h"
#include "testing/s3_words.h"

namespace cairn::loopback {

struct Incoming {
  S3Request seen;
  std::string path;  // decoded, with the bucket if it is there
  bool keep_alive = true;
  bool expects_continue = false;
};
// Of the head of a request. Refusal for what is none.
Incoming incoming_of(std::string_view head);

struct Answer {
  int status = 200;
  Texts headers = {};
  std::string text = {};
  // Or, in place of the text, a part of an object.
  ObjectPtr object = {};
  std::uint64_t from = 0;
  std::uint64_t size = 0;
};
Answer answer_of(const Incoming& request, const Piece& body, Shelf& shelf, const S3ServerOptions& options,
                 Clock::time_point now);
// The calls that list something, and those that nobody knows.
Answer listed(const Incoming& request, Shelf& shelf, const S3ServerOptions& options);
Answer refused(const Incoming& request, const Refusal& refusal, const std::string& request_id);
const char* reason_of(int status);

struct Keys {
  std::string access_key;
  std::string secret_key;
  std::string session_token;
};
// Refusal when the signature is not what these keys make of the request.
void check_signature(const Incoming& request, const Keys& keys, const std::string& region,
                     Clock::time_point now);
std::string access_key_of(const Incoming& request);  // empty: not signed

}  // namespace cairn::loopback
