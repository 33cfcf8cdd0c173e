#include "testing/s3_shelf.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <set>
#include <utility>

namespace cairn::loopback {
namespace {

constexpr std::size_t kLargePage = 2 << 20;

// Of large bodies that went: memory that was used before has all its pages, and what a client is measured
// against is not how fast the server is given new ones.
class SpareMemory {
 public:
  ~SpareMemory() {
    for (const auto& [size, memory] : spare_) std::free(memory);
  }

  // Of whole pages.
  void* take(std::size_t size) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = spare_.find(size); found != spare_.end()) {
        void* const memory = found->second;
        spare_.erase(found);
        return memory;
      }
    }
    void* const memory = std::aligned_alloc(kLargePage, size);
    if (memory == nullptr) throw std::bad_alloc();
    (void)madvise(memory, size, MADV_HUGEPAGE);
    return memory;
  }
  void give(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    spare_.emplace(size, memory);
  }

 private:
  std::mutex mutex_;
  std::multimap<std::size_t, void*> spare_;  // by size
};

}  // namespace

// Not cleared: bodies are received into it.
Piece new_piece(std::size_t size) {
  if (size < kLargePage) {
    void* const memory = std::malloc(std::max<std::size_t>(size, 1));
    if (memory == nullptr) throw std::bad_alloc();
    return {std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }),
            size};
  }
  static const auto spare = std::make_shared<SpareMemory>();
  const std::size_t whole = (size + kLargePage - 1) / kLargePage * kLargePage;
  return {std::shared_ptr<std::byte>(static_cast<std::byte*>(spare->take(whole)),
                                     [from = spare, whole](std::byte* p) { from->give(p, whole); }),
          size};
}

void Shelf::add_bucket(const std::string& bucket) {
  if (bucket.size() < 3) throw Refusal{400, "InvalidBucketName"};
  const std::lock_guard lock(mutex_);
  buckets_[bucket];
}

void Shelf::check_bucket(const std::string& bucket) const {
  const std::lock_guard lock(mutex_);
  if (!buckets_.contains(bucket)) throw Refusal{404, "NoSuchBucket"};
}

std::vector<std::string> Shelf::buckets() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, objects] : buckets_) names.push_back(name);
  return names;
}

Objects& Shelf::in(const std::string& bucket) {
  const auto found = buckets_.find(bucket);
  if (found == buckets_.end()) throw Refusal{404, "NoSuchBucket"};
  return found->second;
}

void Shelf::make_room(std::uint64_t gone, std::uint64_t come) {
  if (come > gone && (come - gone > quota_ || stored_ > quota_ - (come - gone)))
    throw Refusal{403, "QuotaExceeded"};
  stored_ = stored_ - gone + come;
}

std::string Shelf::etag_of(const Piece& body) const {
  static std::atomic<std::uint64_t> last = 0;
  return md5_ ? hex(md5(body.span())) : fmt::format("{:032x}", ++last);
}

ObjectPtr Shelf::put(const std::string& bucket, const std::string& key, const Piece& body,
                     const Texts& metadata, bool only_new, Clock::time_point now) {
  auto object = std::make_shared<Object>(Object{{body}, body.size, etag_of(body), metadata, now});
  ObjectPtr old;  // goes when the lock has gone
  const std::lock_guard lock(mutex_);
  Objects& objects = in(bucket);
  const auto there = objects.find(key);
  if (only_new && there != objects.end()) throw Refusal{412, "PreconditionFailed"};
  make_room(there == objects.end() ? 0 : there->second->size, body.size);
  old = std::exchange(objects[key], object);
  return object;
}

ObjectPtr Shelf::get(const std::string& bucket, const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = buckets_.find(bucket);
  if (found == buckets_.end()) throw Refusal{404, "NoSuchBucket"};
  const auto object = found->second.find(key);
  if (object == found->second.end()) throw Refusal{404, "NoSuchKey"};
  return object->second;
}

ObjectPtr Shelf::copy(const ObjectPtr& from, const std::string& bucket, const std::string& key,
                      const Texts* metadata, Clock::time_point now) {
  auto object = std::make_shared<Object>(*from);
  object->modified = now;
  if (metadata != nullptr) object->metadata = *metadata;
  const std::lock_guard lock(mutex_);
  Objects& objects = in(bucket);
  const auto old = objects.find(key);
  make_room(old == objects.end() ? 0 : old->second->size, object->size);
  objects[key] = object;
  return object;
}

void Shelf::remove(const std::string& bucket, const std::string& key) {
  ObjectPtr old;
  const std::lock_guard lock(mutex_);
  Objects& objects = in(bucket);
  const auto found = objects.find(key);
  if (found == objects.end()) return;
  old = std::move(found->second);
  objects.erase(found);
  make_room(old->size, 0);
}

Objects Shelf::with_prefix(const std::string& bucket, const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  const auto found = buckets_.find(bucket);
  if (found == buckets_.end()) throw Refusal{404, "NoSuchBucket"};
  Objects objects;
  for (auto at = found->second.lower_bound(prefix);
       at != found->second.end() && at->first.starts_with(prefix); ++at)
    objects.emplace_hint(objects.end(), *at);
  return objects;
}

std::string Shelf::begin(const std::string& bucket, const std::string& key, const Texts& metadata,
                         Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  in(bucket);
  std::string id = fmt::format("2~upload{:06}", ++last_upload_);
  uploads_[id] = {bucket, key, metadata, now, {}};
  return id;
}

StoredUpload& Shelf::find(const std::string& upload, const std::string& bucket, const std::string& key) {
  in(bucket);
  const auto found = uploads_.find(upload);
  if (found == uploads_.end() || found->second.bucket != bucket || found->second.key != key)
    throw Refusal{404, "NoSuchUpload"};
  return found->second;
}

std::string Shelf::put_part(const std::string& upload, const std::string& bucket, const std::string& key,
                            int number, const Piece& body, Clock::time_point now) {
  const std::string etag = etag_of(body);
  Piece old;
  const std::lock_guard lock(mutex_);
  auto& parts = find(upload, bucket, key).parts;
  const auto there = parts.find(number);
  make_room(there == parts.end() ? 0 : there->second.piece.size, body.size);
  StoredPart& part = parts[number];
  old = std::exchange(part.piece, body);
  part.etag = etag;
  part.modified = now;
  return etag;
}

// What a list names twice or out of order is taken; what it leaves out is not.
std::string Shelf::complete(const std::string& upload, const std::string& bucket, const std::string& key,
                            const PartList& list, bool only_new, Clock::time_point now) {
  ObjectPtr old;
  const std::lock_guard lock(mutex_);
  if (const auto done = completed_.find(upload); done != completed_.end()) {
    if (done->second.list != list) throw Refusal{500, "InternalError"};
    return done->second.etag;
  }
  StoredUpload& from = find(upload, bucket, key);
  std::set<int> named;
  for (const auto& [number, etag] : list) {
    const auto part = from.parts.find(number);
    if (part == from.parts.end() || part->second.etag != etag) throw Refusal{400, "InvalidPart"};
    named.insert(number);
  }
  if (list.empty()) throw Refusal{400, "MalformedXML"};
  if (only_new && in(bucket).contains(key)) throw Refusal{412, "PreconditionFailed"};
  if (named.size() != from.parts.size()) throw Refusal{400, "InvalidPart"};
  auto object = std::make_shared<Object>(Object{{}, 0, "", from.metadata, now});
  std::string sums;
  for (const auto& [number, part] : from.parts) {
    if (number != from.parts.rbegin()->first && part.piece.size < least_part_)
      throw Refusal{400, "EntityTooSmall"};
    object->pieces.push_back(part.piece);
    object->size += part.piece.size;
    sums += part.etag;
  }
  object->etag = fmt::format("{}-{}", hex(md5(std::as_bytes(std::span(sums)))), from.parts.size());
  ObjectPtr& place = in(bucket)[key];
  if (place != nullptr) make_room(place->size, 0);  // the parts themselves were counted when they came
  old = std::exchange(place, object);
  uploads_.erase(upload);
  completed_[upload] = {object->etag, list};
  return "";
}

void Shelf::abort(const std::string& upload, const std::string& bucket, const std::string& key) {
  StoredUpload old;  // its memory goes after the lock
  const std::lock_guard lock(mutex_);
  old = std::move(find(upload, bucket, key));
  uploads_.erase(upload);
  for (const auto& [number, part] : old.parts) make_room(part.piece.size, 0);
}

StoredUpload Shelf::upload(const std::string& id, const std::string& bucket, const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return const_cast<Shelf*>(this)->find(id, bucket, key);
}

std::map<std::string, StoredUpload> Shelf::uploads() const {
  const std::lock_guard lock(mutex_);
  return uploads_;
}

std::uint64_t Shelf::stored() const {
  const std::lock_guard lock(mutex_);
  return stored_;
}

}  // namespace cairn::loopback
