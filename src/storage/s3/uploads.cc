// Objects in parts.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "cairn/error.h"
#include "storage/s3/objects.h"
#include "storage/s3/xml.h"

namespace cairn::s3 {
namespace {

constexpr std::uint64_t kMostCopiedAtOnce = std::uint64_t{5} << 30;
constexpr std::uint64_t kCopiedPart = std::uint64_t{1} << 30;

}  // namespace

std::string begin_upload(Client& client, const std::string& key, const UserMetadata& metadata) {
  check_key(client, key);
  Call call{.method = "POST", .key = key, .query = {{"uploads", ""}}, .headers = metadata_headers(metadata)};
  client.call(call);
  std::string id(parse_xml(call.text).text_of("UploadId"));
  if (id.empty())
    throw Error(ErrorCode::kIo, "the server does not say what the upload is called")
        .in_file(client.shown(key));
  return id;
}

void put_parts(Client& client, const std::string& key, const std::string& upload, std::span<Part> parts) {
  std::vector<Call> calls;
  calls.reserve(parts.size());
  for (const Part& part : parts)
    calls.push_back({.method = "PUT",
                     .key = key,
                     .query = {{"partNumber", std::to_string(part.number)}, {"uploadId", upload}},
                     .body = part.bytes});
  try {
    if (calls.size() == 1)
      client.call(calls.front());
    else
      client.call_all(calls);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kConflict, "somebody has taken away the upload that was under way")
        .in_file(client.shown(key));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].etag = unquoted(calls[i].header("etag"));
    if (parts[i].etag.empty())
      throw Error(ErrorCode::kIo, "the server took a part and did not give its ETag")
          .in_file(client.shown(key));
  }
}

bool complete_upload(Client& client, const std::string& key, const std::string& upload,
                     const std::map<int, std::string>& etags, std::uint64_t size, const std::string& token,
                     bool only_new) {
  std::string document = "<CompleteMultipartUpload>";
  for (const auto& [number, etag] : etags)
    document += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>&quot;{}&quot;</ETag></Part>", number,
                            xml_text(etag));
  document += "</CompleteMultipartUpload>";
  Call call{.method = "POST",
            .key = key,
            .query = {{"uploadId", upload}},
            .headers = {{"content-type", "application/xml"}},
            .body = {as_bytes(document)},
            .expected = {404, 409, 412}};
  if (only_new) call.headers.emplace_back("if-none-match", "*");
  client.call(call);
  if (call.status / 100 == 2 && !call.sent_before) return true;  // of all parts, each of which was answered
  // The answer may be that to a second try, and servers differ in what they put into it.
  const auto there = head(client, key);
  const bool ours = there && there->metadata.contains(kToken) && there->metadata.at(kToken) == token;
  if (ours && there->size == size) return true;
  if (ours)
    throw Error(ErrorCode::kIo, fmt::format("{} bytes were sent and {} have arrived", size, there->size))
        .in_file(client.shown(key));
  if (only_new && there) return false;
  if (call.status / 100 == 2 && there) return true;  // and somebody has replaced it already
  throw Error(ErrorCode::kConflict, "somebody has taken away the upload that was under way")
      .in_file(client.shown(key));
}

void abort_upload(Client& client, const std::string& key, const std::string& upload) {
  Call call{.method = "DELETE", .key = key, .query = {{"uploadId", upload}}, .expected = {404}};
  client.call(call);
}

void copy_large(Client& client, const std::string& from, const std::string& etag, std::uint64_t size,
                const std::string& to) {
  const std::string token = random_token();
  if (size <= kMostCopiedAtOnce) return copy(client, from, to, UserMetadata{{kToken, token}}, etag);
  const std::string upload = begin_upload(client, to, {{kToken, token}});
  try {
    std::vector<Call> calls;
    for (std::uint64_t at = 0; at < size; at += kCopiedPart)
      calls.push_back(
          {.method = "PUT",
           .key = to,
           .query = {{"partNumber", std::to_string(calls.size() + 1)}, {"uploadId", upload}},
           .headers = {{"x-amz-copy-source", "/" + client.bucket() + "/" + percent_encoded(from, true)},
                       {"x-amz-copy-source-if-match", '"' + etag + '"'},
                       {"x-amz-copy-source-range",
                        fmt::format("bytes={}-{}", at, std::min(at + kCopiedPart, size) - 1)}}});
    client.call_all(calls);
    std::map<int, std::string> etags;
    for (const Call& call : calls)
      etags[static_cast<int>(etags.size()) + 1] = unquoted(parse_xml(call.text).text_of("ETag"));
    complete_upload(client, to, upload, etags, size, token, false);
  } catch (...) {
    try {
      abort_upload(client, to, upload);
    } catch (...) {
    }
    throw;
  }
}

}  // namespace cairn::s3
