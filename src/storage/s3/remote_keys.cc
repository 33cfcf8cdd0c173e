// Keys that are asked for over the network: of AWS's token service, of the container's and the machine's own.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "storage/s3/digest.h"
#include "storage/s3/key_sources.h"
#include "storage/s3/sign.h"
#include "storage/s3/xml.h"

namespace cairn::s3 {
namespace {

constexpr std::size_t kMostAnswerBytes = 64 << 10;
constexpr std::string_view kContainerHost = "http://169.254.170.2";

struct Patience {
  std::chrono::milliseconds each;
  int tries;
};
constexpr Patience kOfTokenService{std::chrono::seconds(10), 4};
constexpr Patience kOfContainer{std::chrono::seconds(2), 3};
constexpr Patience kOfInstance{std::chrono::seconds(1), 2};  // most machines have none

bool answered_well(const Exchange& exchange) {
  return exchange.outcome == Exchange::Outcome::kAnswered && exchange.status / 100 == 2;
}

bool worth_another_try(const Exchange& exchange) {
  using Why = Exchange::Outcome;
  if (exchange.outcome == Why::kAnswered) return exchange.status >= 500 || exchange.status == 429;
  return exchange.outcome != Why::kUntrusted && exchange.outcome != Why::kTooLong;
}

void ask(Http& http, Exchange& exchange, const Patience& patience) {
  exchange.most_text = kMostAnswerBytes;
  auto begin = std::chrono::steady_clock::now();
  for (int left = patience.tries; left > 0; --left) {
    exchange.deadline = begin + patience.each;
    Transfers transfers(http);
    transfers.start(exchange, begin);
    transfers.next();
    if (!worth_another_try(exchange)) return;
    begin = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  }
}

// A code of an answer: a word, or nothing when it is something else. Whatever else an answer says may have a
// secret in it.
std::string code_word(std::string_view text) {
  const bool plain = text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
                     });
  return plain && !text.empty() ? fmt::format(" {}", text) : "";
}

std::string told(const Exchange& exchange, std::string_view code = "") {
  if (exchange.outcome != Exchange::Outcome::kAnswered) return exchange.why;
  return fmt::format("it answered {}{}", exchange.status, code_word(code));
}

[[noreturn]] void bad_answer(std::string_view who, std::string_view what) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {}", who, what));
}

void set_end(Credentials& keys, std::string_view end, std::string_view who) {
  if (end.empty()) return;
  keys.expires = time_of_iso(end);
  if (!keys.expires) bad_answer(who, "the answer's time of expiration is none");
}

// What containers and machines answer with.
Credentials keys_of_json(const std::string& text, std::string_view who) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) bad_answer(who, "the answer is no JSON object");
  const auto of = [&](const char* name) {
    const auto found = json.find(name);
    const auto* value = found == json.end() ? nullptr : found->get_ptr<const std::string*>();
    return value == nullptr ? std::string() : *value;
  };
  if (const std::string code = of("Code"); !code.empty() && code != "Success")
    bad_answer(who, "it has no keys" + code_word(code));
  Credentials keys{of("AccessKeyId"), of("SecretAccessKey"), of("Token"), {}};
  set_end(keys, of("Expiration"), who);
  return checked_keys(std::move(keys), ErrorCode::kIo, who);
}

// Nothing in it when it is no XML.
XmlElement xml_answer(const std::string& text) {
  try {
    return parse_xml(text);
  } catch (const Error&) {
    return {};
  }
}

Credentials keys_of_role(const std::string& text, std::string_view who) {
  const XmlElement answer = xml_answer(text);
  const XmlElement* result = answer.child("AssumeRoleWithWebIdentityResult");
  const XmlElement* given = result == nullptr ? nullptr : result->child("Credentials");
  if (given == nullptr) bad_answer(who, "the answer has no <Credentials>");
  Credentials keys{std::string(given->text_of("AccessKeyId")),
                   std::string(given->text_of("SecretAccessKey")),
                   std::string(given->text_of("SessionToken")),
                   {}};
  set_end(keys, given->text_of("Expiration"), who);
  return checked_keys(std::move(keys), ErrorCode::kIo, who);
}

std::string error_code_of(const std::string& text) {
  const XmlElement answer = xml_answer(text);
  const XmlElement* error = answer.child("Error");
  return std::string(error == nullptr ? answer.text_of("Code") : error->text_of("Code"));
}

// A file that others renew: the line in it.
std::string token_in(const KeyAsker& asker, const std::string& path, std::string_view named_by) {
  std::optional<std::string> token = asker.surroundings.file(path);
  if (!token)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} names a file that is not there", named_by))
        .in_file(path);
  while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
  if (token->empty())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} names an empty file", named_by)).in_file(path);
  return *token;
}

// The name or address of a URL's host; empty when it is no URL of http or https, or one that some would read
// one way and some another.
std::string host_of(std::string_view url) {
  if ((!url.starts_with("http://") && !url.starts_with("https://")) || !is_visible(url)) return "";
  url.remove_prefix(url.find("://") + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (url.find_first_of("@\\%") != url.npos) return "";
  const bool bracketed = url.starts_with('[');
  if (bracketed) url.remove_prefix(1);
  const std::size_t end = url.find(bracketed ? ']' : ':');
  return bracketed && end == url.npos ? "" : std::string(url.substr(0, end));
}

bool is_near(const std::string& host) {
  constexpr std::array kNear = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23", "::1"};
  std::array<unsigned char, 16> address, near;
  if (inet_pton(AF_INET, host.c_str(), address.data()) == 1 && address[0] == 127) return true;
  for (const char* one : kNear)
    for (const auto& [family, size] : {std::pair(AF_INET, 4U), std::pair(AF_INET6, 16U)})
      if (inet_pton(family, host.c_str(), address.data()) == 1 && inet_pton(family, one, near.data()) == 1 &&
          std::memcmp(address.data(), near.data(), size) == 0)
        return true;
  return host == "localhost";
}

// What a variable says, or the usual one; without slashes at its end. Its value is not in the message: there
// may be a password in it.
std::string base_url(const Surroundings& surroundings, const std::string& variable,
                     const std::string& usual) {
  std::string url = said(surroundings, variable).value_or(usual);
  while (url.ends_with('/')) url.pop_back();
  if (host_of(url).empty())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is no URL like {}", variable, usual));
  return url;
}

}  // namespace

Credentials assume_role(const KeyAsker& asker, const WebIdentity& identity) {
  const std::string token =
      token_in(asker, identity.token_file, "AWS_WEB_IDENTITY_TOKEN_FILE (or the profile)");
  Exchange exchange;
  exchange.url =
      base_url(asker.surroundings, "AWS_ENDPOINT_URL_STS", aws_endpoint("sts", asker.region)) + "/";
  const std::string who = fmt::format("web identity, asked of {}", host_of(exchange.url));
  // In the body: a URL is something that others write down.
  const std::string form =
      query_string({{"Action", "AssumeRoleWithWebIdentity"},
                    {"Version", "2011-06-15"},
                    {"RoleArn", identity.role},
                    {"RoleSessionName", identity.session.empty() ? "cairn" : identity.session},
                    {"WebIdentityToken", token}});
  exchange.method = "POST";
  exchange.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  exchange.body = {as_bytes(form)};
  ask(asker.http, exchange, kOfTokenService);
  if (!answered_well(exchange)) bad_answer(who, told(exchange, error_code_of(exchange.text)));
  return keys_of_role(exchange.text, who);
}

std::optional<std::string> container_url(const Surroundings& surroundings) {
  const auto refuse = [](std::string_view what) {
    throw Error(ErrorCode::kInvalidArgument, std::string(what));
  };
  if (const auto path = said(surroundings, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")) {
    if (!path->starts_with('/') || !is_visible(*path))
      refuse("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is no path that begins with '/'");
    return std::string(kContainerHost) + *path;
  }
  const auto url = said(surroundings, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!url) return std::nullopt;
  const std::string host = host_of(*url);
  if (host.empty()) refuse("AWS_CONTAINER_CREDENTIALS_FULL_URI is no URL of http or https");
  if (!url->starts_with("https://") && !is_near(host))
    refuse(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI is http to another machine, where anybody may listen: use https");
  return url;
}

FoundKeys container_keys(const KeyAsker& asker) {
  const std::optional<std::string> url = container_url(asker.surroundings);
  if (!url)
    return {.why_none =
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and AWS_CONTAINER_CREDENTIALS_FULL_URI are not set"};
  const std::string who =
      fmt::format("the container's keys, asked of {}", host_of(*url));  // the path is a secret
  Exchange exchange;
  exchange.url = *url;
  std::string token = said(asker.surroundings, "AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
  if (const auto file = said(asker.surroundings, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"))
    token = token_in(asker, *file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (has_controls(token))
    throw Error(ErrorCode::kInvalidArgument,
                "AWS_CONTAINER_AUTHORIZATION_TOKEN (or its _FILE) has a line break or another control "
                "character in it");
  if (!token.empty()) exchange.headers = {{"authorization", token}};
  ask(asker.http, exchange, kOfContainer);
  if (!answered_well(exchange)) bad_answer(who, told(exchange));
  return {.keys = keys_of_json(exchange.text, who)};
}

FoundKeys instance_keys(const KeyAsker& asker) {
  const std::string off = said(asker.surroundings, "AWS_EC2_METADATA_DISABLED").value_or("");
  if (off == "true" || off == "True" || off == "TRUE")
    return {.why_none = "AWS_EC2_METADATA_DISABLED is true"};
  const std::string base =
      base_url(asker.surroundings, "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254");
  const std::string who = fmt::format("the machine's keys, asked of {}", host_of(base));

  Exchange session;
  session.method = "PUT";
  session.url = base + "/latest/api/token";
  session.headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}};
  ask(asker.http, session, kOfInstance);
  if (!answered_well(session)) return {.why_none = fmt::format("{}: {}", who, told(session))};
  if (!is_visible(session.text)) bad_answer(who, "its token has an odd character in it");
  const auto get = [&](const std::string& path) {
    Exchange exchange;
    exchange.url = base + "/latest/meta-data/iam/security-credentials/" + path;
    exchange.headers = {{"x-aws-ec2-metadata-token", session.text}};
    ask(asker.http, exchange, kOfInstance);
    return exchange;
  };
  const Exchange roles = get("");
  const std::string role = roles.text.substr(0, roles.text.find_first_of("\r\n"));
  if (roles.status == 404 || (answered_well(roles) && role.empty()))
    return {.why_none = fmt::format("{}: the machine has no role", who)};
  if (!answered_well(roles)) bad_answer(who, told(roles));
  const Exchange keys = get(percent_encoded(role, false));
  if (!answered_well(keys)) bad_answer(who, told(keys));
  return {.keys = keys_of_json(keys.text, who)};
}

}  // namespace cairn::s3
