#include "storage/s3/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "cairn/error.h"

namespace cairn::s3 {
namespace {

bool only_has(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

// "https://host:9000/base" in its parts.
struct EndpointParts {
  std::string_view scheme;
  std::string_view host;  // with its port, unless it is the usual one
  std::string_view base;  // "/base"
};

EndpointParts parts_of(std::string_view endpoint) {
  EndpointParts parts;
  const std::size_t colon = std::min(endpoint.find("://"), endpoint.size());
  parts.scheme = endpoint.substr(0, colon);
  const std::string_view rest = endpoint.substr(std::min(colon + 3, endpoint.size()));
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  parts.host = rest.substr(0, slash);
  parts.base = rest.substr(slash);
  const std::string_view usual = parts.scheme == "http" ? ":80" : ":443";
  if (parts.host.ends_with(usual)) parts.host.remove_suffix(usual.size());
  return parts;
}

}  // namespace

Location location_of(const Settings& settings, const std::string& bucket) {
  if (bucket.empty()) return {.endpoint = settings.endpoint, .region = "", .bucket_in_path = true};
  if (bucket.size() < 3 || bucket.size() > 255 || !only_has(bucket, ".-_"))
    throw Error(ErrorCode::kInvalidArgument,
                "a bucket's name has 3 to 255 letters, digits, dots, hyphens and underscores")
        .in_file("s3://" + bucket);
  // The certificate of *.s3.amazonaws.com is not one for a name with another dot in it.
  const bool dots = bucket.find('.') != std::string::npos && settings.endpoint.starts_with("https:");
  return {.endpoint = settings.endpoint,
          .region = settings.region.empty() ? "us-east-1" : settings.region,
          .bucket_in_path = settings.path_style || dots};
}

std::optional<Location> moved(const Location& location, const Settings& settings, std::string_view region) {
  if (region.empty() || region.size() > 63 || region == location.region || !only_has(region, "-"))
    return std::nullopt;
  Location there = location;
  there.region = region;
  if (!settings.own_endpoint)
    there.endpoint =
        fmt::format("https://s3.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
  return there;
}

Exchange exchange_of(const Call& call, const Signer& signer, const std::string& md5) {
  const Location& at = signer.location;
  const EndpointParts endpoint = parts_of(at.endpoint);
  const std::string host =
      at.bucket_in_path ? std::string(endpoint.host) : fmt::format("{}.{}", signer.bucket, endpoint.host);
  std::string path(endpoint.base);
  if (at.bucket_in_path && !signer.bucket.empty()) path += "/" + signer.bucket;
  if (!call.key.empty() || path.empty()) path += "/" + percent_encoded(call.key, true);

  Headers headers = call.headers;
  headers.emplace_back("host", host);
  if (signer.settings.requester_pays) headers.emplace_back("x-amz-request-payer", "requester");
  if (!md5.empty()) headers.emplace_back("content-md5", md5);
  if (signer.credentials != nullptr) {
    const Signable request = {.method = call.method, .path = path, .query = call.query, .headers = headers};
    for (auto& header : signature_headers(request, *signer.credentials, at.region, signer.now))
      headers.push_back(std::move(header));
  }

  Exchange exchange;
  exchange.method = call.method;
  exchange.url = fmt::format("{}://{}{}", endpoint.scheme, host, path);
  if (!call.query.empty()) exchange.url += "?" + query_string(call.query);
  exchange.headers = std::move(headers);
  exchange.body = call.body;
  exchange.into = call.into;
  exchange.most_text = call.most_text;
  exchange.follow = signer.bucket.empty();  // there are no keys that could go to another host
  return exchange;
}

}  // namespace cairn::s3
