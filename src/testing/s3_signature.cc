// Checks version 4 signatures from the description of them, with nothing of the client's.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <ctime>

#include "testing/s3_request.h"

namespace cairn::loopback {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256 ";

const std::string& header_of(const Incoming& request, const std::string& name) {
  static const std::string kNone;
  const auto found = request.seen.headers.find(name);
  return found == request.seen.headers.end() ? kNone : found->second;
}

// "Credential=a/b, SignedHeaders=..." -> {Credential: a/b, ...}
Texts fields_of(std::string_view authorization) {
  Texts fields;
  while (!authorization.empty()) {
    const std::string_view one = authorization.substr(0, authorization.find(','));
    authorization.remove_prefix(std::min(authorization.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    if (equals != std::string_view::npos)
      fields[trimmed(one.substr(0, equals))] = trimmed(one.substr(equals + 1));
  }
  return fields;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Several spaces count as one.
std::string squeezed(const std::string& text) {
  std::string short_one;
  for (const char c : text)
    if (c != ' ' || !short_one.ends_with(' ')) short_one += c;
  return short_one;
}

Clock::time_point time_of(const std::string& text) {
  std::tm parts = {};
  const char* end = strptime(text.c_str(), "%Y%m%dT%H%M%SZ", &parts);
  if (end == nullptr || *end != 0) throw Refusal{403, "AccessDenied"};
  return Clock::from_time_t(timegm(&parts));
}

std::string canonical(const Incoming& request, const std::string& signed_names, const std::string& payload) {
  std::string query;
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : request.seen.query)
    sorted[to_percents(name, false)] = to_percents(value, false);
  for (const auto& [name, value] : sorted)
    query += fmt::format("{}{}={}", query.empty() ? "" : "&", name, value);
  std::string headers;
  for (const std::string& name : split(signed_names, ';'))
    headers += fmt::format("{}:{}\n", name, squeezed(header_of(request, name)));
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.seen.method, to_percents(request.path, true), query,
                     headers, signed_names, payload);
}

}  // namespace

std::string access_key_of(const Incoming& request) {
  const std::string& authorization = header_of(request, "authorization");
  if (!authorization.starts_with(kAlgorithm)) return "";
  return split(fields_of(std::string_view(authorization).substr(kAlgorithm.size()))["Credential"], '/')[0];
}

void check_signature(const Incoming& request, const Keys& keys, const std::string& region,
                     Clock::time_point now) {
  const std::string& authorization = header_of(request, "authorization");
  if (!authorization.starts_with(kAlgorithm)) throw Refusal{403, "AccessDenied"};
  Texts fields = fields_of(std::string_view(authorization).substr(kAlgorithm.size()));
  const std::vector<std::string> scope = split(fields["Credential"], '/');
  if (scope.size() != 5 || scope[3] != "s3" || scope[4] != "aws4_request")
    throw Refusal{400, "AuthorizationHeaderMalformed"};
  if (scope[0] != keys.access_key) throw Refusal{403, "InvalidAccessKeyId"};
  if (!region.empty() && scope[2] != region)
    throw Refusal{400, "AuthorizationHeaderMalformed", {{"Region", region}}};
  const std::string& stamp = header_of(request, "x-amz-date");
  if (!stamp.starts_with(scope[1])) throw Refusal{403, "SignatureDoesNotMatch"};
  if (std::chrono::abs(now - time_of(stamp)) > std::chrono::minutes(15))
    throw Refusal{403, "RequestTimeTooSkewed"};
  if (header_of(request, "x-amz-security-token") != keys.session_token) throw Refusal{403, "InvalidToken"};
  const std::string& payload = header_of(request, "x-amz-content-sha256");
  if (payload.empty()) throw Refusal{400, "InvalidRequest"};

  // What is not signed could be changed on the way.
  const std::string around = ";" + fields["SignedHeaders"] + ";";
  for (const auto& [name, value] : request.seen.headers)
    if ((name == "host" || name.starts_with("x-amz-")) && around.find(";" + name + ";") == std::string::npos)
      throw Refusal{403, "AccessDenied"};

  const std::string day = fmt::format("{}/{}/s3/aws4_request", scope[1], scope[2]);
  const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, day,
                                       hex(sha256(canonical(request, fields["SignedHeaders"], payload))));
  std::string key = "AWS4" + keys.secret_key;
  for (std::size_t i = 1; i < scope.size(); ++i) key = hmac_sha256(key, scope[i]);
  if (hex(hmac_sha256(key, text)) != fields["Signature"]) throw Refusal{403, "SignatureDoesNotMatch"};
}

}  // namespace cairn::loopback
