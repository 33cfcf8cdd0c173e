#include "storage/s3/sign.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "storage/s3/digest.h"

namespace cairn::s3 {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

bool goes_unencoded(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Without spaces at its ends, and with one where there are several.
std::string squeezed(std::string_view value) {
  std::string text;
  bool space = false;
  for (const char c : value) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      space = !text.empty();
      continue;
    }
    if (space) text += ' ';
    space = false;
    text += c;
  }
  return text;
}

// The headers as they are signed: names in lower case and sorted, each once.
Headers signed_form(const Headers& headers) {
  Headers sorted;
  for (const auto& [name, value] : headers) {
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(), lower_case);
    sorted.emplace_back(std::move(lower), squeezed(value));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Headers merged;
  for (auto& header : sorted) {
    if (!merged.empty() && merged.back().first == header.first)
      merged.back().second += "," + header.second;
    else
      merged.push_back(std::move(header));
  }
  return merged;
}

// What a key is made for.
struct DaysKeyOf {
  std::string secret;
  std::string day;
  std::string region;
  std::string service;
  bool operator==(const DaysKeyOf&) const = default;
};

Sha256 made_key(const DaysKeyOf& of) {
  Sha256 key = hmac_sha256(as_bytes("AWS4" + of.secret), of.day);
  key = hmac_sha256(key, of.region);
  key = hmac_sha256(key, of.service);
  return hmac_sha256(key, "aws4_request");
}

// Makes a key once a day. Each thread keeps the few that it uses: no lock, which a fork could leave locked.
Sha256 days_key(DaysKeyOf of) {
  struct Kept {
    DaysKeyOf of;
    Sha256 key;
  };
  thread_local std::array<Kept, 4> kept;
  thread_local std::size_t next = 0;
  for (const Kept& one : kept)
    if (one.of == of) return one.key;
  Kept& place = kept[next++ % kept.size()];
  place.key = made_key(of);
  place.of = std::move(of);
  return place.key;
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (goes_unencoded(c) || (keep_slashes && c == '/')) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4U];
    encoded += kDigits[byte & 15U];
  }
  return encoded;
}

std::string query_string(const Query& query) {
  Query encoded;
  for (const auto& [name, value] : query)
    encoded.emplace_back(percent_encoded(name, false), percent_encoded(value, false));
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) {
    if (!text.empty()) text += '&';
    text += name + "=" + value;
  }
  return text;
}

Headers signature_headers(const Signable& request, const Credentials& credentials, std::string_view region,
                          Time now, std::string_view service) {
  const std::string time = signing_time(now);
  const std::string day = time.substr(0, 8);
  Headers ours = {{"x-amz-date", time}, {"x-amz-content-sha256", std::string(request.payload)}};
  if (!credentials.session_token.empty())
    ours.emplace_back("x-amz-security-token", credentials.session_token);

  Headers all = request.headers;
  all.insert(all.end(), ours.begin(), ours.end());
  std::string lines, names;
  for (const auto& [name, value] : signed_form(all)) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string asked = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                        query_string(request.query), lines, names, request.payload);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, service);
  const std::string to_sign =
      fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, scope, hex(sha256(as_bytes(asked))));
  const Sha256 key = days_key({credentials.secret_key, day, std::string(region), std::string(service)});
  ours.emplace_back("authorization",
                    fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                                credentials.access_key, scope, names, hex(hmac_sha256(key, to_sign))));
  return ours;
}

}  // namespace cairn::s3
