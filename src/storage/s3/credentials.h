// Who we are to a server, found as every other tool finds it, and renewed before it ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "storage/s3/http.h"
#include "storage/s3/settings.h"

namespace cairn::s3 {

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: none
  std::optional<std::chrono::system_clock::time_point> expires;
};

// The first of these that is there: the environment's keys; a web identity (AWS_WEB_IDENTITY_TOKEN_FILE); the
// profile; the container's; the instance's, unless AWS_EC2_METADATA_DISABLED. For many threads at once.
class CredentialChain {
 public:
  // The clock is for tests.
  CredentialChain(
      Surroundings surroundings, const Settings& settings, Http& http,
      std::function<std::chrono::system_clock::time_point()> clock = std::chrono::system_clock::now);
  ~CredentialChain();

  // Those that hold for at least five minutes more, or as long as the source gives any. One thread renews;
  // the others take the old ones meanwhile, and wait for it when those have ended. While old ones hold, a
  // renewal that fails is no error. Error(kInvalidArgument), with all places that were looked into and what
  // to set, when there are none; Error(kUnsupported) for a profile that gets its keys in a way that cairn
  // does not know; a source that answers badly is Error(kIo). No message has a secret in it.
  Credentials get();

  // A server said that these have expired or are not valid any more: the next get() asks the source again.
  void renew_after(const Credentials& refused);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::s3
