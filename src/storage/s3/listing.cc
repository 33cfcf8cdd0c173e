// Listings of objects and of uploads, page by page.
#include <algorithm>
#include <charconv>
#include <utility>

#include "cairn/error.h"
#include "storage/s3/digest.h"
#include "storage/s3/objects.h"
#include "storage/s3/xml.h"

namespace cairn::s3 {
namespace {

[[noreturn]] void refuse_listing(const Client& client, const std::string& prefix, const char* why) {
  throw Error(ErrorCode::kCorrupt, std::string("the server's listing makes no sense: ") + why)
      .in_file(client.shown(prefix));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Keys in listings are encoded, as they may hold what XML has no way to say. Some servers do not do it, and
// some do not say that they do: then there is no slash in what they send.
class PageOfKeys {
 public:
  explicit PageOfKeys(const XmlElement& page) : encoded_(page.text_of("EncodingType") == "url") {
    if (page.child("EncodingType") != nullptr) return;
    const auto has_slash = [](std::string_view text) { return text.find('/') != text.npos; };
    encoded_ = std::none_of(page.children.begin(), page.children.end(), [&](const XmlElement& part) {
      return has_slash(part.text_of("Key")) || has_slash(part.text_of("Prefix"));
    });
  }

  std::string plain(std::string_view text) const {
    if (!encoded_) return std::string(text);
    std::string key;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
      if (low >= 0) i += 2;
      key += low >= 0 ? static_cast<char>(high * 16 + low) : text[i] == '+' ? ' ' : text[i];
    }
    return key;
  }

 private:
  bool encoded_;
};

XmlElement page_of(Client& client, const std::string& prefix, Query query) {
  query.emplace_back("prefix", prefix);
  query.emplace_back("encoding-type", "url");
  Call call{.query = std::move(query)};
  client.call(call);
  try {
    return parse_xml(call.text);
  } catch (Error& e) {
    e.in_file(client.shown(prefix));
    throw;
  }
}

bool more_pages(const XmlElement& page) { return page.text_of("IsTruncated") == "true"; }

}  // namespace

Listing list(Client& client, const std::string& prefix, bool delimited) {
  Listing all;
  std::string token;
  while (true) {
    Query query = {{"list-type", "2"}};
    if (delimited) query.emplace_back("delimiter", "/");
    if (!token.empty()) query.emplace_back("continuation-token", token);
    const XmlElement page = page_of(client, prefix, std::move(query));
    const PageOfKeys keys(page);
    for (const XmlElement& part : page.children) {
      if (part.name == "CommonPrefixes") all.folders.push_back(keys.plain(part.text_of("Prefix")));
      if (part.name != "Contents") continue;
      Listed& listed = all.objects.emplace_back();
      listed.key = keys.plain(part.text_of("Key"));
      if (!listed.key.starts_with(prefix)) refuse_listing(client, prefix, "a key is of another prefix");
      const std::string_view size = part.text_of("Size");
      const auto end = std::from_chars(size.data(), size.data() + size.size(), listed.size);
      if (size.empty() || end.ptr != size.data() + size.size())
        refuse_listing(client, prefix, "an object's size is no number");
      listed.etag = unquoted(part.text_of("ETag"));
      listed.modified = time_of_iso(part.text_of("LastModified")).value_or(Time());
    }
    if (!more_pages(page)) return all;
    std::string next(page.text_of("NextContinuationToken"));
    if (next.empty() || next == token) refuse_listing(client, prefix, "there is more, and no way to go on");
    token = std::move(next);
  }
}

bool any(Client& client, const std::string& prefix) {
  const XmlElement page = page_of(client, prefix, {{"list-type", "2"}, {"max-keys", "1"}});
  return page.child("Contents") != nullptr;
}

std::vector<Upload> uploads(Client& client, const std::string& prefix) {
  std::vector<Upload> all;
  std::string key, id;
  while (true) {
    Query query = {{"uploads", ""}};
    if (!key.empty()) query.emplace_back("key-marker", key);
    if (!id.empty()) query.emplace_back("upload-id-marker", id);
    const XmlElement page = page_of(client, prefix, std::move(query));
    const PageOfKeys keys(page);
    for (const XmlElement& part : page.children) {
      if (part.name != "Upload") continue;
      all.push_back({keys.plain(part.text_of("Key")), std::string(part.text_of("UploadId")),
                     time_of_iso(part.text_of("Initiated")).value_or(Time())});
    }
    if (!more_pages(page)) return all;
    const std::string next = keys.plain(page.text_of("NextKeyMarker"));
    const std::string next_id(page.text_of("NextUploadIdMarker"));
    if (next.empty() || (next == key && next_id == id))
      refuse_listing(client, prefix, "there is more, and no way to go on");
    key = next, id = next_id;
  }
}

}  // namespace cairn::s3
