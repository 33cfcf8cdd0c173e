// Signature version 4: what proves to a server that a request is ours.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/s3/credentials.h"

namespace cairn::s3 {

// Names and values as they are, neither encoded nor sorted.
using Query = std::vector<std::pair<std::string, std::string>>;
using Headers = std::vector<std::pair<std::string, std::string>>;

// Every byte but letters, digits and "-._~" as %XX, and "/" too unless it is to be kept.
std::string percent_encoded(std::string_view text, bool keep_slashes);

// The query as it is signed and sent: encoded, sorted, every name with its "=".
std::string query_string(const Query& query);

struct Signable {
  std::string_view method;
  std::string_view path;  // encoded, as it is sent; begins with "/"
  const Query& query;
  const Headers& headers;                         // those to sign: host among them
  std::string_view payload = "UNSIGNED-PAYLOAD";  // or the hexadecimal SHA-256 of the body
};

// The headers that a request needs besides its own: x-amz-date, x-amz-content-sha256, x-amz-security-token
// where there is one, authorization.
Headers signature_headers(const Signable& request, const Credentials& credentials, std::string_view region,
                          std::chrono::system_clock::time_point now, std::string_view service = "s3");

}  // namespace cairn::s3
