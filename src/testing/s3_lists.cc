// The lists that the loopback S3 server gives, page by page.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "testing/s3_request.h"

namespace cairn::loopback {
namespace {

std::string asked(const S3Request& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

std::size_t most_of(const S3Request& request, const std::string& name, std::size_t most) {
  const std::string text = asked(request, name);
  return text.empty() ? most : std::min<std::size_t>(most, std::strtoull(text.c_str(), nullptr, 10));
}

// Keys and prefixes, as they stand in the document.
std::string name_in(const S3Request& request, const std::string& name) {
  return asked(request, "encoding-type") == "url" ? to_percents(name, false) : escaped(name);
}

std::string element(const char* name, const std::string& text) {
  return fmt::format("<{0}>{1}</{0}>", name, text);
}

std::string objects(const S3Request& request, const Shelf& shelf, std::size_t most) {
  const std::string prefix = asked(request, "prefix");
  const std::string delimiter = asked(request, "delimiter");
  std::string after = asked(request, "continuation-token");
  if (after.empty()) after = asked(request, "start-after");
  most = most_of(request, "max-keys", most);
  std::string contents;
  std::string folders;
  std::string last;  // key or folder
  std::size_t count = 0;
  bool more = false;
  for (const auto& [key, object] : shelf.with_prefix(request.bucket, prefix)) {
    const std::size_t end = delimiter.empty() ? std::string::npos : key.find(delimiter, prefix.size());
    const bool deeper = end != std::string::npos;
    const std::string name = deeper ? key.substr(0, end + delimiter.size()) : key;
    if (name <= after || name == last) continue;
    more = count == most;
    if (more) break;
    ++count;
    last = name;
    if (deeper) {
      folders += element("CommonPrefixes", element("Prefix", name_in(request, name)));
      continue;
    }
    contents +=
        element("Contents",
                element("Key", name_in(request, name)) + element("LastModified", xml_date(object->modified)) +
                    element("ETag", "&quot;" + object->etag + "&quot;") +
                    element("Size", std::to_string(object->size)) + element("StorageClass", "STANDARD"));
  }
  std::string all = element("Name", request.bucket) + element("Prefix", name_in(request, prefix)) +
                    element("MaxKeys", std::to_string(most)) + element("KeyCount", std::to_string(count)) +
                    element("IsTruncated", more ? "true" : "false");
  if (more) all += element("NextContinuationToken", escaped(last));
  if (!delimiter.empty()) all += element("Delimiter", name_in(request, delimiter));
  return element("ListBucketResult", all + contents + folders);
}

std::string uploads(const S3Request& request, const Shelf& shelf, std::size_t most) {
  const std::string prefix = asked(request, "prefix");
  const auto after = std::make_pair(asked(request, "key-marker"), asked(request, "upload-id-marker"));
  most = most_of(request, "max-uploads", most);
  std::map<std::pair<std::string, std::string>, std::string> found;
  for (const auto& [id, upload] : shelf.uploads())
    if (upload.bucket == request.bucket && upload.key.starts_with(prefix))
      found[{upload.key, id}] = xml_date(upload.begun);
  std::string list;
  std::pair<std::string, std::string> last;
  std::size_t count = 0;
  bool more = false;
  for (const auto& [name, begun] : found) {
    // A marker of a key alone leaves out all uploads of that key.
    if (after.second.empty() ? name.first <= after.first : name <= after) continue;
    more = count == most;
    if (more) break;
    ++count;
    last = name;
    list +=
        element("Upload", element("Key", name_in(request, name.first)) + element("UploadId", name.second) +
                              element("StorageClass", "STANDARD") + element("Initiated", begun));
  }
  std::string all = element("Bucket", request.bucket) + element("Prefix", name_in(request, prefix)) +
                    element("MaxUploads", std::to_string(most)) +
                    element("IsTruncated", more ? "true" : "false");
  if (more)
    all +=
        element("NextKeyMarker", name_in(request, last.first)) + element("NextUploadIdMarker", last.second);
  return element("ListMultipartUploadsResult", all + list);
}

std::string parts(const S3Request& request, const Shelf& shelf, std::size_t most) {
  const StoredUpload upload = shelf.upload(asked(request, "uploadId"), request.bucket, request.key);
  const int after = std::atoi(asked(request, "part-number-marker").c_str());
  most = most_of(request, "max-parts", most);
  std::string list;
  int last = 0;
  std::size_t count = 0;
  bool more = false;
  for (const auto& [number, part] : upload.parts) {
    if (number <= after) continue;
    more = count == most;
    if (more) break;
    ++count;
    last = number;
    list += element("Part", element("PartNumber", std::to_string(number)) +
                                element("LastModified", xml_date(part.modified)) +
                                element("ETag", "&quot;" + part.etag + "&quot;") +
                                element("Size", std::to_string(part.piece.size)));
  }
  return element("ListPartsResult", element("Bucket", request.bucket) + element("Key", escaped(request.key)) +
                                        element("UploadId", asked(request, "uploadId")) +
                                        element("NextPartNumberMarker", std::to_string(last)) +
                                        element("MaxParts", std::to_string(most)) +
                                        element("IsTruncated", more ? "true" : "false") + list);
}

}  // namespace

Answer listed(const Incoming& request, Shelf& shelf, const S3ServerOptions& options) {
  const S3Request& seen = request.seen;
  const std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
  if (seen.kind == "ListObjectsV2") return {.text = xml + objects(seen, shelf, options.most_listed)};
  if (seen.kind == "ListMultipartUploads") return {.text = xml + uploads(seen, shelf, options.most_listed)};
  if (seen.kind == "ListParts") return {.text = xml + parts(seen, shelf, options.most_listed)};
  if (seen.kind != "ListBuckets") throw Refusal{501, "NotImplemented"};
  std::string names;
  for (const std::string& name : shelf.buckets()) names += element("Bucket", element("Name", name));
  return {.text = xml + element("ListAllMyBucketsResult", element("Buckets", names))};
}

}  // namespace cairn::loopback
