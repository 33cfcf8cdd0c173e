// An S3 server on loopback that keeps objects in memory, for tests and as the yardstick of benchmarks. It
// answers as Ceph's gateway does where servers differ, and does wrong what a test asks it to.
//
//   S3Server server({.access_key = "k", .secret_key = "s"});
//   ... a client with server.endpoint(), bucket "bucket" ...
//   server.set_fault([](const S3Request& r) { return S3Fault{.drop = r.kind == "PutObject", .carried_out =
//   true}; }); EXPECT_EQ(server.requests("PutObject"), 3);
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

struct S3ServerOptions {
  std::string access_key = {};  // empty: takes anybody, signed or not
  std::string secret_key = {};
  std::string session_token = {};  // empty: none is asked for
  std::string region = {};  // empty: any; else requests signed for another one are refused, and told which
  std::vector<std::string> buckets = {"bucket"};  // that are there from the beginning
  bool tls = false;  // with a certificate of its own; ca_bundle() is the file for clients
  int port = 0;      // 0: a free one
  std::uint64_t least_part = 5 << 20;
  std::uint64_t quota = std::numeric_limits<std::uint64_t>::max();  // of stored bytes
  bool no_conditions = false;                                       // does not look at If-None-Match of a PUT
  // Looks at If-None-Match of CompleteMultipartUpload and at x-amz-copy-source-if-match too, as Amazon's
  // does.
  bool all_conditions = false;
  bool md5 = true;                         // what ETags are; false: numbers, which cost nothing
  std::size_t most_listed = 1000;          // entries of a page
  std::chrono::microseconds latency = {};  // before each answer
};

// One request, its body not read yet.
struct S3Request {
  // PutObject GetObject HeadObject DeleteObject CopyObject ListObjectsV2 DeleteObjects CreateMultipartUpload
  // UploadPart UploadPartCopy CompleteMultipartUpload AbortMultipartUpload ListMultipartUploads ListParts
  // CreateBucket HeadBucket ListBuckets, or "Other"
  std::string kind;
  std::string method;
  std::string bucket;
  std::string key;
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::uint64_t size = 0;                      // of its body
  std::uint64_t number = 0;                    // of all requests, from 1
  std::uint64_t number_of_kind = 0;            // the same, of this kind
  int in_flight = 0;                           // requests at work now, this one among them
};

// What goes wrong with a request. Delays come first; the fields may be combined.
struct S3Fault {
  bool drop = false;  // the connection ends without an answer
  int status = 0;     // this, with an <Error> of `code`, instead of the answer; 200 is possible
  bool carried_out =
      false;              // before the drop or the wrong answer. Otherwise nothing is, and nothing is stored
  bool twice = false;     // carried out two times; the second answer is sent
  std::string code = {};  // empty: SlowDown of 503 and 429, otherwise InternalError
  std::map<std::string, std::string> headers = {};  // to add to the answer
  std::chrono::milliseconds delay = {};             // before anything is done
  std::optional<std::uint64_t> truncate = {};  // after so many bytes of the answer's body the connection ends
  bool wrong_range = false;                    // Content-Range says another place
  bool corrupt = false;                        // one bit in the middle of the answer's body is another
  std::uint64_t bytes_per_second = 0;          // of the answer's body; 0: as fast as it goes
  std::string raw = {};  // sent in place of an answer, byte by byte as it is, and then the connection ends
};

struct S3Stored {
  std::string bytes;
  std::string etag;                             // without quotes
  std::map<std::string, std::string> metadata;  // without "x-amz-meta-"
  std::chrono::system_clock::time_point modified;
};

class S3Server {
 public:
  explicit S3Server(S3ServerOptions options = {});
  ~S3Server();
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  std::string endpoint() const;          // "http://127.0.0.1:1234"
  std::string virtual_endpoint() const;  // "http://s3.localhost:1234": BUCKET.s3.localhost:1234 is a bucket
  int port() const;
  const std::string& ca_bundle() const;  // a file; empty without TLS

  // A copy of all that a bucket holds, by key.
  std::map<std::string, S3Stored> objects(const std::string& bucket = "bucket") const;
  std::vector<std::string> keys(const std::string& bucket = "bucket") const;
  void put(const std::string& key, const std::string& bytes, const std::string& bucket = "bucket");
  void remove(const std::string& key, const std::string& bucket = "bucket");
  std::size_t uploads() const;         // begun, neither completed nor aborted
  std::uint64_t stored_bytes() const;  // with those of uploads

  // Asked for each request, by many threads at once; nothing goes wrong when it is empty.
  void set_fault(std::function<S3Fault(const S3Request&)> fault);
  // Other keys from now on; those of before have expired.
  void set_keys(std::string access_key, std::string secret_key, std::string session_token);
  // The server's clock, against the machine's: of Date, Last-Modified and the check of signatures.
  void set_clock_ahead(std::chrono::seconds ahead);

  std::uint64_t requests() const;                         // all of them so far
  std::uint64_t requests(const std::string& kind) const;  // those of one kind
  std::map<std::string, std::uint64_t> requests_by_kind() const;
  std::uint64_t connections() const;  // that were opened so far
  int most_in_flight() const;
  void forget_requests();  // counts from 0 again

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn
