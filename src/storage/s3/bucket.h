// A bucket, as all of this process share it: connections, what the store was found to do, locks.
#pragma once

#include <memory>
#include <string>

#include "storage/s3/client.h"
#include "storage/s3/per_process.h"

namespace cairn::s3 {

class Bucket {
 public:
  Bucket(std::string name, ClientOptions options, Surroundings surroundings);
  ~Bucket();
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  Client& client() { return client_; }
  // Whether of two that create one key the second is told so. Found out once, by two writes of an object of
  // this prefix; where writing is not allowed, it is believed.
  bool keeps_apart(const std::string& prefix);

  // Whether nobody in this process has the lock; he has it then.
  bool take(const std::string& lock);
  void give_back(const std::string& lock);

 private:
  struct Known;
  Client client_;
  PerProcess<Known> known_;
};

// The bucket of this name at the endpoint that the environment says: one object for all who use it at a time.
std::shared_ptr<Bucket> bucket_named(const std::string& name);
// A plain web server, "https://host:8443": keys are its paths, nothing is signed, and its redirects are
// followed.
std::shared_ptr<Bucket> web_server(const std::string& endpoint);

}  // namespace cairn::s3
