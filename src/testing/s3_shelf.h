// What the loopback S3 server keeps: buckets of objects, and uploads that are under way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "testing/s3_words.h"

namespace cairn::loopback {

// Bytes that one request has brought: written once, then only read.
struct Piece {
  std::shared_ptr<std::byte> bytes;
  std::size_t size = 0;
  std::span<const std::byte> span() const { return {bytes.get(), size}; }
};
Piece new_piece(std::size_t size);

struct Object {
  std::vector<Piece> pieces;
  std::uint64_t size = 0;
  std::string etag;  // without quotes
  Texts metadata;    // "x-amz-meta-..."
  Clock::time_point modified;
};
using ObjectPtr = std::shared_ptr<const Object>;
using Objects = std::map<std::string, ObjectPtr>;

struct StoredPart {
  Piece piece;
  std::string etag;
  Clock::time_point modified;
};
struct StoredUpload {
  std::string bucket;
  std::string key;
  Texts metadata;
  Clock::time_point begun;
  std::map<int, StoredPart> parts;
};
using PartList = std::vector<std::pair<int, std::string>>;  // numbers and ETags, as Complete is given them

class Shelf {
 public:
  Shelf(std::uint64_t quota, std::uint64_t least_part, bool md5)
      : quota_(quota), least_part_(least_part), md5_(md5) {}

  void add_bucket(const std::string& bucket);
  void check_bucket(const std::string& bucket) const;
  std::vector<std::string> buckets() const;

  // All of them throw what the server would answer. An `only_new` one that is there is a 412.
  ObjectPtr put(const std::string& bucket, const std::string& key, const Piece& body, const Texts& metadata,
                bool only_new, Clock::time_point now);
  ObjectPtr get(const std::string& bucket, const std::string& key) const;
  ObjectPtr copy(const ObjectPtr& from, const std::string& bucket, const std::string& key,
                 const Texts* metadata, Clock::time_point now);
  void remove(const std::string& bucket, const std::string& key);
  Objects with_prefix(const std::string& bucket, const std::string& prefix) const;

  std::string begin(const std::string& bucket, const std::string& key, const Texts& metadata,
                    Clock::time_point now);
  std::string put_part(const std::string& upload, const std::string& bucket, const std::string& key,
                       int number, const Piece& body, Clock::time_point now);
  // The ETag to answer with: empty, but for a repetition.
  std::string complete(const std::string& upload, const std::string& bucket, const std::string& key,
                       const PartList& list, bool only_new, Clock::time_point now);
  void abort(const std::string& upload, const std::string& bucket, const std::string& key);
  StoredUpload upload(const std::string& id, const std::string& bucket, const std::string& key) const;
  std::map<std::string, StoredUpload> uploads() const;  // by id
  std::uint64_t stored() const;

 private:
  // The caller holds the mutex.
  Objects& in(const std::string& bucket);
  StoredUpload& find(const std::string& upload, const std::string& bucket, const std::string& key);
  void make_room(std::uint64_t gone, std::uint64_t come);
  std::string etag_of(const Piece& body) const;

  const std::uint64_t quota_;
  const std::uint64_t least_part_;
  const bool md5_;
  mutable std::mutex mutex_;
  std::map<std::string, Objects> buckets_;
  std::map<std::string, StoredUpload> uploads_;
  struct Done {
    std::string etag;
    PartList list;
  };
  std::map<std::string, Done> completed_;  // by upload
  std::uint64_t stored_ = 0;
  std::uint64_t last_upload_ = 0;
};

}  // namespace cairn::loopback
