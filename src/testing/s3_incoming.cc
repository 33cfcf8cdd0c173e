// The head of a request, and what kind of call it is.
#include <algorithm>
#include <cstdlib>

#include "testing/s3_request.h"

namespace cairn::loopback {
namespace {

// "BUCKET.s3.localhost:1234" and "BUCKET.localhost" name a bucket, "s3.localhost" and "127.0.0.1" none.
std::string bucket_of_host(std::string host) {
  host = host.substr(0, host.find(':'));
  for (const std::string& domain : {std::string(".s3.localhost"), std::string(".localhost")})
    if (host != "s3.localhost" && host.ends_with(domain)) return host.substr(0, host.size() - domain.size());
  return "";
}

std::string kind_of(const S3Request& r) {
  const auto asks = [&](const char* name) { return r.query.contains(name); };
  const bool copies = r.headers.contains("x-amz-copy-source");
  const std::string& m = r.method;
  if (r.bucket.empty()) return m == "GET" ? "ListBuckets" : "Other";
  if (r.key.empty()) {
    if (m == "PUT") return "CreateBucket";
    if (m == "HEAD") return "HeadBucket";
    if (m == "POST" && asks("delete")) return "DeleteObjects";
    if (m == "GET" && asks("uploads")) return "ListMultipartUploads";
    if (m == "GET" && asks("list-type")) return "ListObjectsV2";
    return "Other";
  }
  if (m == "PUT" && asks("uploadId")) return copies ? "UploadPartCopy" : "UploadPart";
  if (m == "PUT") return copies ? "CopyObject" : "PutObject";
  if (m == "GET") return asks("uploadId") ? "ListParts" : "GetObject";
  if (m == "HEAD") return "HeadObject";
  if (m == "DELETE") return asks("uploadId") ? "AbortMultipartUpload" : "DeleteObject";
  if (m == "POST" && asks("uploads")) return "CreateMultipartUpload";
  if (m == "POST" && asks("uploadId")) return "CompleteMultipartUpload";
  return "Other";
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find("\r\n"), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 2));
  return line;
}

}  // namespace

Incoming incoming_of(std::string_view head) {
  Incoming request;
  S3Request& seen = request.seen;
  const std::string_view first = take_line(head);
  const std::size_t space = first.find(' ');
  const std::size_t last = first.rfind(' ');
  if (space == std::string_view::npos || space == last || !first.substr(last + 1).starts_with("HTTP/1."))
    throw Refusal{400, "BadRequest"};
  seen.method = first.substr(0, space);
  const std::string_view target = first.substr(space + 1, last - space - 1);
  while (!head.empty()) {
    const std::string_view line = take_line(head);
    if (const std::size_t colon = line.find(':'); colon != std::string_view::npos)
      seen.headers[in_lower_case(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  request.keep_alive = in_lower_case(seen.headers["connection"]) != "close" && first.ends_with("1.1");
  request.expects_continue = in_lower_case(seen.headers["expect"]) == "100-continue";

  const std::size_t mark = std::min(target.find('?'), target.size());
  request.path = from_percents(target.substr(0, mark), false);
  if (mark < target.size()) seen.query = query_of(target.substr(mark + 1));
  seen.bucket = bucket_of_host(seen.headers["host"]);
  const std::string path = request.path.substr(std::min<std::size_t>(request.path.size(), 1));
  if (!seen.bucket.empty()) {
    seen.key = path;
  } else {
    seen.bucket = path.substr(0, path.find('/'));
    seen.key = path.substr(std::min(path.size(), seen.bucket.size() + 1));
  }
  seen.kind = kind_of(seen);
  seen.size = std::strtoull(seen.headers["content-length"].c_str(), nullptr, 10);
  return request;
}

}  // namespace cairn::loopback
