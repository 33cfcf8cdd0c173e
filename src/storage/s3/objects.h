// What is done with the objects of a bucket, each one call or a few of S3's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/s3/client.h"

namespace cairn::s3 {

using Bytes = std::span<const std::byte>;
using UserMetadata = std::map<std::string, std::string>;  // without "x-amz-meta-", in lower case

// Goes with every object that we make: by it a writer whose answer was lost knows its own.
inline constexpr const char* kToken = "cairn-token";
std::string random_token();

struct ObjectHead {
  std::uint64_t size = 0;
  std::string etag;  // without quotes
  std::chrono::system_clock::time_point modified;
  UserMetadata metadata;
};
std::optional<ObjectHead> head(Client& client, const std::string& key);

// Sends the object whole, in one request. With `only_new`: false when there is one already. An answer that
// was lost is settled by a token that goes with the object, never by guessing.
bool put(Client& client, const std::string& key, Bytes bytes, UserMetadata metadata, bool only_new);

// Into `to`, from that place, in pieces side by side. With an `etag`: Error(kNotFound) with errno ESTALE when
// the object is another one by now.
void get(Client& client, const std::string& key, const std::string& etag, std::uint64_t offset,
         std::span<std::byte> to);

// On the server; Error(kNotFound) when `from` is not there at that moment. With `metadata`, in place of its
// own; with an `etag`, Error(kConflict) when `from` is another one by now, as far as the server looks at it.
void copy(Client& client, const std::string& from, const std::string& to,
          const std::optional<UserMetadata>& metadata = std::nullopt, const std::string& etag = "");

void remove(Client& client, const std::vector<std::string>& keys);  // those that are not there, too

struct Listed {
  std::string key;
  std::uint64_t size = 0;
  std::string etag;
  std::chrono::system_clock::time_point modified;
};
struct Listing {
  std::vector<Listed> objects;
  std::vector<std::string> folders;  // common prefixes, each with a "/" at its end
};
// All pages. With `delimited`, what lies deeper is one folder.
Listing list(Client& client, const std::string& prefix, bool delimited);
// Whether anything has a key of that prefix: one request.
bool any(Client& client, const std::string& prefix);

// An object in parts. Parts may be sent in any order by many threads; nothing is seen before complete().
std::string begin_upload(Client& client, const std::string& key, const UserMetadata& metadata);
struct Part {
  int number = 0;  // from 1
  std::vector<Bytes> bytes;
  std::string etag;  // after it was sent
};
void put_parts(Client& client, const std::string& key, const std::string& upload, std::span<Part> parts);
// Where the answer leaves it open what happened, looks at the object, at its size and at the token that was
// in its upload's metadata. With `only_new`: false when there is an object already, where the server takes
// conditions here; many do not.
bool complete_upload(Client& client, const std::string& key, const std::string& upload,
                     const std::map<int, std::string>& etags, std::uint64_t size, const std::string& token,
                     bool only_new);
// An object as it is, without its metadata, to a key of another one or a new one: also more than copy() can
// do.
void copy_large(Client& client, const std::string& from, const std::string& etag, std::uint64_t size,
                const std::string& to);
void abort_upload(Client& client, const std::string& key, const std::string& upload);  // that is gone, too

struct Upload {
  std::string key;
  std::string id;
  std::chrono::system_clock::time_point begun;
};
std::vector<Upload> uploads(Client& client, const std::string& prefix);

// Error(kLimit) for a key that is longer than a server takes.
void check_key(const Client& client, const std::string& key);
std::string unquoted(std::string_view etag);
Headers metadata_headers(const UserMetadata& metadata);

}  // namespace cairn::s3
