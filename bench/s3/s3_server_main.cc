// The S3 server of the tests as a process: `s3_server --latency 20` prints its address, serves until its
// standard input ends, and then prints the requests that it had by kind. For the Python tests and the
// benchmarks.
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "testing/s3_server.h"

namespace {

constexpr const char* kUsage =
    "usage: s3_server [--port N] [--keys ACCESS:SECRET[:TOKEN]] [--latency MILLISECONDS] [--tls] "
    "[--least-part BYTES]\n"
    "                 [--quota BYTES] [--no-md5] [--no-conditions] [--bucket NAME] [--completed-etag]\n";

// Ceph's answer to CompleteMultipartUpload has no ETag, and there are clients that do not go on without any.
cairn::S3Fault with_some_etag(const cairn::S3Request& request) {
  if (request.kind != "CompleteMultipartUpload") return {};
  return {.headers = {{"ETag", "\"00000000000000000000000000000000-1\""}}};
}

// Fills in what the arguments say; false when they make no sense.
bool parse(int argc, char** argv, cairn::S3ServerOptions& options, bool& completed_etag) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tls")
      options.tls = true;
    else if (name == "--no-md5")
      options.md5 = false;
    else if (name == "--no-conditions")
      options.no_conditions = true;
    else if (name == "--completed-etag")
      completed_etag = true;
    else if (i + 1 == argc)
      return false;
    else if (name == "--port")
      options.port = std::atoi(argv[++i]);
    else if (name == "--latency")
      options.latency = std::chrono::milliseconds(std::atoi(argv[++i]));
    else if (name == "--least-part")
      options.least_part = std::strtoull(argv[++i], nullptr, 10);
    else if (name == "--quota")
      options.quota = std::strtoull(argv[++i], nullptr, 10);
    else if (name == "--bucket")
      options.buckets.emplace_back(argv[++i]);
    else if (name == "--keys") {
      const std::string keys = argv[++i];
      const std::size_t first = keys.find(':');
      if (first == std::string::npos) return false;
      const std::size_t second = std::min(keys.find(':', first + 1), keys.size());
      options.access_key = keys.substr(0, first);
      options.secret_key = keys.substr(first + 1, second - first - 1);
      options.session_token = keys.substr(std::min(second + 1, keys.size()));
    } else
      return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  cairn::S3ServerOptions options;
  bool completed_etag = false;
  if (!parse(argc, argv, options, completed_etag)) {
    std::cerr << kUsage;
    return 2;
  }
  try {
    cairn::S3Server server(options);
    if (completed_etag) server.set_fault(with_some_etag);
    std::cout << server.endpoint() << ' ' << server.ca_bundle() << std::endl;
    for (std::string line; std::getline(std::cin, line);) continue;
    for (const auto& [kind, count] : server.requests_by_kind())
      std::cout << fmt::format("{} {}\n", kind, count);
    std::cout << fmt::format("at-once {}\n", server.most_in_flight());
  } catch (const std::exception& error) {
    std::cerr << "s3_server: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
