// The calls of S3's on objects, as Ceph's gateway carries them out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "testing/s3_request.h"

namespace cairn::loopback {
namespace {

constexpr std::string_view kXml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

std::string value(const Texts& texts, const std::string& name) {
  const auto found = texts.find(name);
  return found == texts.end() ? "" : found->second;
}

std::string without_quotes(std::string text) {
  std::erase(text, '"');
  return text;
}

// What goes with an object. More than the gateway takes is refused.
Texts metadata_of(const S3Request& request) {
  Texts metadata;
  std::size_t size = 0;
  for (const auto& [name, text] : request.headers) {
    if (!name.starts_with("x-amz-meta-")) continue;
    metadata[name] = text;
    size += name.size() + text.size();
  }
  if (size > 16 << 10) throw Refusal{400, "InvalidRequest"};
  return metadata;
}

// What a client says its body hashes to.
void check_body(const S3Request& request, const Piece& body) {
  const std::string_view text(reinterpret_cast<const char*>(body.bytes.get()), body.size);
  if (const std::string sum = value(request.headers, "content-md5");
      !sum.empty() && request.kind != "DeleteObjects" && sum != base64(md5(body.span())))
    throw Refusal{400, "BadDigest"};
  const std::string sum = value(request.headers, "x-amz-content-sha256");
  if (sum.size() == 64 && sum != hex(sha256(text))) throw Refusal{400, "XAmzContentSHA256Mismatch"};
}

// "bytes=1-2", "bytes=1-", "bytes=-2", cut at the end; anything else is the whole object.
bool find_range(const std::string& range, std::uint64_t size, std::uint64_t& from, std::uint64_t& length) {
  if (!range.starts_with("bytes=")) return false;
  const std::string first = range.substr(6, range.find(',') - 6);
  const std::size_t dash = first.find('-');
  if (dash == std::string::npos || first.size() == 1) return false;
  const std::uint64_t left = std::strtoull(first.c_str(), nullptr, 10);
  const std::uint64_t right = std::strtoull(first.c_str() + dash + 1, nullptr, 10);
  std::uint64_t end = size;
  if (dash == 0) {
    from = size - std::min(size, right);
  } else {
    from = left;
    if (dash + 1 < first.size()) end = right < size ? right + 1 : size;
  }
  if (from >= end) throw Refusal{416, "InvalidRange"};
  length = end - from;
  return true;
}

Answer get(const S3Request& request, const ObjectPtr& object) {
  if (const std::string wanted = value(request.headers, "if-match");
      !wanted.empty() && wanted != "*" && without_quotes(wanted) != object->etag)
    throw Refusal{412, "PreconditionFailed"};
  Answer answer{.headers = object->metadata, .object = object, .size = object->size};
  answer.headers["ETag"] = fmt::format("\"{}\"", object->etag);
  answer.headers["Last-Modified"] = http_date(object->modified);
  answer.headers["Accept-Ranges"] = "bytes";
  answer.headers["Content-Type"] = "binary/octet-stream";
  if (find_range(value(request.headers, "range"), object->size, answer.from, answer.size)) {
    answer.status = 206;
    answer.headers["Content-Range"] =
        fmt::format("bytes {}-{}/{}", answer.from, answer.from + answer.size - 1, object->size);
  }
  return answer;
}

ObjectPtr copied_from(const S3Request& request, Shelf& shelf, bool conditions, std::string& from) {
  from = from_percents(value(request.headers, "x-amz-copy-source"), false);
  if (from.starts_with('/')) from.erase(0, 1);
  const std::size_t slash = from.find('/');
  if (slash == std::string::npos) throw Refusal{400, "InvalidArgument"};
  ObjectPtr object = shelf.get(from.substr(0, slash), from.substr(slash + 1));
  const std::string wanted = without_quotes(value(request.headers, "x-amz-copy-source-if-match"));
  if (conditions && !wanted.empty() && wanted != object->etag) throw Refusal{412, "PreconditionFailed"};
  return object;
}

Answer copy(const S3Request& request, Shelf& shelf, bool conditions, Clock::time_point now) {
  std::string from;
  const ObjectPtr object = copied_from(request, shelf, conditions, from);
  const bool replaces = value(request.headers, "x-amz-metadata-directive") == "REPLACE";
  if (from == request.bucket + "/" + request.key && !replaces) throw Refusal{400, "InvalidRequest"};
  const Texts metadata = metadata_of(request);
  const ObjectPtr made = shelf.copy(object, request.bucket, request.key, replaces ? &metadata : nullptr, now);
  return {.text = fmt::format("{}<CopyObjectResult><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag>"
                              "</CopyObjectResult>",
                              kXml, xml_date(made->modified), made->etag)};
}

Answer copy_part(const S3Request& request, Shelf& shelf, bool conditions, int number, Clock::time_point now) {
  std::string from;
  const ObjectPtr object = copied_from(request, shelf, conditions, from);
  std::uint64_t begin = 0;
  std::uint64_t size = object->size;
  const std::string range = value(request.headers, "x-amz-copy-source-range");
  if (!range.empty() && (!find_range(range, object->size, begin, size) || range.ends_with('-') ||
                         begin + size <= std::strtoull(range.c_str() + range.find('-') + 1, nullptr, 10)))
    throw Refusal{416, "InvalidRange"};
  const Piece part = new_piece(size);
  std::uint64_t at = 0;
  for (const Piece& piece : object->pieces) {
    const std::uint64_t first = std::max(at, begin);
    const std::uint64_t last = std::min(at + piece.size, begin + size);
    if (first < last)
      std::copy(piece.bytes.get() + (first - at), piece.bytes.get() + (last - at),
                part.bytes.get() + (first - begin));
    at += piece.size;
  }
  const std::string etag =
      shelf.put_part(value(request.query, "uploadId"), request.bucket, request.key, number, part, now);
  return {.text =
              fmt::format("{}<CopyPartResult><LastModified>{}</LastModified><ETag>{}</ETag></CopyPartResult>",
                          kXml, xml_date(now), etag)};
}

Answer complete(const S3Request& request, const Piece& body, Shelf& shelf, bool conditions,
                Clock::time_point now) {
  const std::string_view xml(reinterpret_cast<const char*>(body.bytes.get()), body.size);
  PartList list;
  for (const std::string& part : texts_of(xml, "Part")) {
    const auto number = texts_of(part, "PartNumber");
    const auto etag = texts_of(part, "ETag");
    if (number.size() != 1 || etag.size() != 1) throw Refusal{400, "MalformedXML"};
    list.emplace_back(std::atoi(number[0].c_str()), without_quotes(etag[0]));
  }
  const bool only_new = conditions && value(request.headers, "if-none-match") == "*";
  const std::string etag =
      shelf.complete(value(request.query, "uploadId"), request.bucket, request.key, list, only_new, now);
  return {.text = fmt::format(
              "{}<CompleteMultipartUploadResult><Location></Location><Bucket>{}</Bucket><Key>{}</Key>"
              "<ETag>{}</ETag></CompleteMultipartUploadResult>",
              kXml, request.bucket, escaped(request.key), etag)};
}

Answer remove_all(const S3Request& request, const Piece& body, Shelf& shelf) {
  const std::string_view xml(reinterpret_cast<const char*>(body.bytes.get()), body.size);
  const std::vector<std::string> keys = texts_of(xml, "Key");
  if (keys.size() > 1000) return {.status = 400};  // and says nothing
  if (keys.empty()) throw Refusal{400, "MalformedXML"};
  const bool quiet = texts_of(xml, "Quiet") == std::vector<std::string>{"true"};
  Answer answer{.text = fmt::format("{}<DeleteResult>", kXml)};
  for (const std::string& key : keys) {
    shelf.remove(request.bucket, key);
    if (!quiet) answer.text += fmt::format("<Deleted><Key>{}</Key></Deleted>", escaped(key));
  }
  answer.text += "</DeleteResult>";
  return answer;
}

Answer begin(const S3Request& request, Shelf& shelf, Clock::time_point now) {
  const std::string id = shelf.begin(request.bucket, request.key, metadata_of(request), now);
  return {.text = fmt::format(
              "{}<InitiateMultipartUploadResult><Bucket>{}</Bucket><Key>{}</Key><UploadId>{}</UploadId>"
              "</InitiateMultipartUploadResult>",
              kXml, request.bucket, escaped(request.key), id)};
}

}  // namespace

Answer answer_of(const Incoming& request, const Piece& body, Shelf& shelf, const S3ServerOptions& options,
                 Clock::time_point now) {
  const S3Request& seen = request.seen;
  const std::string& kind = seen.kind;
  if (seen.key.size() > 1024) throw Refusal{400, "InvalidObjectName"};
  if (kind == "CreateBucket") {
    shelf.add_bucket(seen.bucket);
    return {};
  }
  if (!seen.bucket.empty()) shelf.check_bucket(seen.bucket);
  check_body(seen, body);
  const std::string upload = value(seen.query, "uploadId");
  const int part = std::atoi(value(seen.query, "partNumber").c_str());
  if (kind == "HeadBucket") return {};
  if (kind == "PutObject") {
    const bool only_new = !options.no_conditions && value(seen.headers, "if-none-match") == "*";
    const ObjectPtr made = shelf.put(seen.bucket, seen.key, body, metadata_of(seen), only_new, now);
    return {.headers = {{"ETag", fmt::format("\"{}\"", made->etag)}}};
  }
  if (kind == "GetObject" || kind == "HeadObject") return get(seen, shelf.get(seen.bucket, seen.key));
  if (kind == "DeleteObject") {
    shelf.remove(seen.bucket, seen.key);
    return {.status = 204};
  }
  if (kind == "CopyObject") return copy(seen, shelf, options.all_conditions, now);
  if (kind == "DeleteObjects") return remove_all(seen, body, shelf);
  if (kind == "CreateMultipartUpload") return begin(seen, shelf, now);
  if (kind == "UploadPart")
    return {.headers = {{"ETag", fmt::format("\"{}\"", shelf.put_part(upload, seen.bucket, seen.key, part,
                                                                      body, now))}}};
  if (kind == "UploadPartCopy") return copy_part(seen, shelf, options.all_conditions, part, now);
  if (kind == "CompleteMultipartUpload") return complete(seen, body, shelf, options.all_conditions, now);
  if (kind == "AbortMultipartUpload") {
    shelf.abort(upload, seen.bucket, seen.key);
    return {.status = 204};
  }
  return listed(request, shelf, options);
}

Answer refused(const Incoming& request, const Refusal& refusal, const std::string& request_id) {
  Answer answer{.status = refusal.status};
  answer.text = fmt::format("{}<Error><Code>{}</Code><Message></Message><BucketName>{}</BucketName>", kXml,
                            refusal.code, escaped(request.seen.bucket));
  for (const auto& [name, text] : refusal.more)
    answer.text += fmt::format("<{0}>{1}</{0}>", name, escaped(text));
  if (refusal.more.contains("Region")) answer.headers["x-amz-bucket-region"] = refusal.more.at("Region");
  answer.text += fmt::format("<RequestId>{0}</RequestId><HostId>{0}</HostId></Error>", request_id);
  return answer;
}

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 412: return "Precondition Failed";
    case 416: return "Requested Range Not Satisfiable";
    case 503: return "Slow Down";
    default: return status < 400 ? "Else" : status < 500 ? "Bad Request" : "Internal Server Error";
  }
}

}  // namespace cairn::loopback
