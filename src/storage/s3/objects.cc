#include "storage/s3/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"
#include "cairn/error.h"
#include "storage/s3/digest.h"
#include "storage/s3/xml.h"

namespace cairn::s3 {
namespace {

constexpr std::string_view kMetaHeader = "x-amz-meta-";
constexpr std::size_t kLongestKey = 1024;
constexpr std::size_t kLeastPiece = 8 << 20;  // of a read
constexpr std::size_t kMostPiece = 16 << 20;
constexpr std::size_t kMostKeysAtOnce = 1000;  // of DeleteObjects
constexpr int kMostLooks = 5;                  // at a key that others are writing, too

ObjectHead head_of(const Call& answer) {
  ObjectHead head;
  const std::string_view length = answer.header("content-length");
  const auto end = std::from_chars(length.data(), length.data() + length.size(), head.size);
  if (length.empty() || end.ptr != length.data() + length.size())
    throw Error(ErrorCode::kIo, "the server does not say how large the object is");
  head.etag = unquoted(answer.header("etag"));
  head.modified = time_of_http(answer.header("last-modified")).value_or(Time());
  for (const auto& [name, value] : answer.answer_headers)
    if (name.starts_with(kMetaHeader)) head.metadata[name.substr(kMetaHeader.size())] = value;
  return head;
}

bool is_ours(Client& client, const std::string& key, const std::string& token) {
  const auto there = head(client, key);
  return there && there->metadata.contains(kToken) && there->metadata.at(kToken) == token;
}

// False also where nobody answers.
bool is_there_and_ours(Client& client, const std::string& key, const std::string& token) {
  try {
    return is_ours(client, key, token);
  } catch (const Error&) {
    return false;
  }
}

Error replaced_meanwhile(const Client& client, const std::string& key) {
  return Error(ErrorCode::kNotFound, "the object has been replaced or removed since it was opened")
      .with_errno(ESTALE)
      .in_file(client.shown(key));
}

void remove_one(Client& client, const std::string& key) {
  Call call{.method = "DELETE", .key = key, .expected = {404}};
  client.call(call);
}

void remove_many(Client& client, std::span<const std::string> keys) {
  std::string document = "<Delete><Quiet>true</Quiet>";
  for (const std::string& key : keys) document += "<Object><Key>" + xml_text(key) + "</Key></Object>";
  document += "</Delete>";
  const Bytes body = as_bytes(document);
  Call call{
      .method = "POST",
      .query = {{"delete", ""}},
      .headers = {{"content-md5", md5_base64(std::span(&body, 1))}, {"content-type", "application/xml"}},
      .body = {body}};
  client.call(call);
  if (call.text.empty()) return;
  const XmlElement answer = parse_xml(call.text);
  for (const XmlElement& part : answer.children)
    if (part.name == "Error" && part.text_of("Code") != "NoSuchKey")
      throw Error(ErrorCode::kIo,
                  fmt::format("cannot be removed: {} {}", part.text_of("Code"), part.text_of("Message")))
          .in_file(client.shown(part.text_of("Key")));
}

}  // namespace

std::string random_token() { return fmt::format("{:016x}{:016x}", random_number(), random_number()); }

std::string unquoted(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

Headers metadata_headers(const UserMetadata& metadata) {
  Headers headers;
  for (const auto& [name, value] : metadata) headers.emplace_back(std::string(kMetaHeader) + name, value);
  return headers;
}

void check_key(const Client& client, const std::string& key) {
  if (key.size() <= kLongestKey) return;
  throw Error(ErrorCode::kLimit,
              fmt::format("a key of {} bytes; object stores take {}", key.size(), kLongestKey))
      .in_file(client.shown(key));
}

std::optional<ObjectHead> head(Client& client, const std::string& key) {
  check_key(client, key);
  Call call{.method = "HEAD", .key = key, .expected = {404}};
  client.call(call);
  if (call.status == 404) return std::nullopt;
  try {
    return head_of(call);
  } catch (Error& e) {
    e.in_file(client.shown(key));
    throw;
  }
}

bool put(Client& client, const std::string& key, Bytes bytes, UserMetadata metadata, bool only_new) {
  check_key(client, key);
  const std::string token = random_token();
  metadata[kToken] = token;
  for (int looks = 1;; ++looks) {
    Call call{.method = "PUT", .key = key, .headers = metadata_headers(metadata), .body = {bytes}};
    if (only_new) {
      call.headers.emplace_back("if-none-match", "*");
      call.expected = {409, 412};
    }
    try {
      client.call(call);
    } catch (const Error& e) {
      if (!only_new || !call.sent_before) throw;
      // No answer in all this time. It is as well when the object is there; when not, it may still come.
      if (is_there_and_ours(client, key, token)) return true;
      throw Error(e.code(), e.message() + "; it may still be carried out")
          .in_file(e.file())
          .with_errno(EINPROGRESS);
    }
    if (call.status / 100 == 2) return true;
    if (call.status == 409 && looks < kMostLooks && !head(client, key)) continue;  // two at the same time
    // Also without sent_before: what stands between us and the server may deliver twice.
    return is_ours(client, key, token);
  }
}

void get(Client& client, const std::string& key, const std::string& etag, std::uint64_t offset,
         std::span<std::byte> to) {
  // Two at once, or more.
  const std::size_t piece = std::clamp((to.size() + 1) / 2, kLeastPiece, kMostPiece);
  std::vector<Call> calls;
  for (std::size_t at = 0; at < to.size(); at += piece) {
    const std::size_t size = std::min(piece, to.size() - at);
    const std::uint64_t begin = offset + at;
    Call& call = calls.emplace_back(Call{.key = key, .into = to.subspan(at, size), .expected = {404, 412}});
    call.headers.emplace_back("range", fmt::format("bytes={}-{}", begin, begin + size - 1));
    if (!etag.empty()) call.headers.emplace_back("if-match", '"' + etag + '"');
  }
  if (calls.size() == 1)
    client.call(calls.front());
  else if (!calls.empty())
    client.call_all(calls);
  for (const Call& call : calls)
    if (call.status / 100 != 2) throw replaced_meanwhile(client, key);
}

void copy(Client& client, const std::string& from, const std::string& to,
          const std::optional<UserMetadata>& metadata, const std::string& etag) {
  check_key(client, to);
  Call call{.method = "PUT",
            .key = to,
            .headers = {{"x-amz-copy-source", "/" + client.bucket() + "/" + percent_encoded(from, true)}}};
  if (metadata) {
    call.headers.emplace_back("x-amz-metadata-directive", "REPLACE");
    for (auto& header : metadata_headers(*metadata)) call.headers.push_back(std::move(header));
  }
  if (!etag.empty()) call.headers.emplace_back("x-amz-copy-source-if-match", '"' + etag + '"');
  client.call(call);
}

void remove(Client& client, const std::vector<std::string>& keys) {
  if (keys.size() == 1) return remove_one(client, keys.front());
  for (std::size_t at = 0; at < keys.size(); at += kMostKeysAtOnce)
    remove_many(client, std::span(keys).subspan(at, std::min(kMostKeysAtOnce, keys.size() - at)));
}

}  // namespace cairn::s3
