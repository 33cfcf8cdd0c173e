#include "storage/s3/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/source.h"
#include "cairn/error.h"
#include "storage/s3/generations.h"
#include "storage/s3/objects.h"
#include "storage/s3/parts.h"

namespace cairn::s3 {
namespace {

constexpr std::uint64_t kMostGathered = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostAtOnce = std::uint64_t{5} << 30;  // in one PUT
constexpr std::uint64_t kPatienceForParts = kLeastPart;        // smaller than one part: never in parts

Error is_there_already(const std::string& shown) {
  return Error(ErrorCode::kConflict, "there is a file of this name already").in_file(shown);
}

// What all parts of one object have in common.
class PartedObject {
 public:
  PartedObject(std::shared_ptr<Bucket> bucket, std::string key, std::uint64_t size)
      : bucket_(std::move(bucket)), key_(std::move(key)), said_(size), cuts_(size) {}

  // Nobody is at work any more. What the server has is taken back unless it was completed.
  ~PartedObject() {
    if (upload_.empty()) return;
    try {
      abort_upload(bucket_->client(), key_, upload_);
    } catch (...) {
      // It is listed as a partial file, and somebody else can remove it.
    }
  }

  void write(std::uint64_t offset, Bytes bytes) {
    const std::uint64_t end = checked_add<std::uint64_t>(offset, bytes.size());
    if (said_ != 0 && end > said_)
      throw Error(ErrorCode::kUnsupported, "is written beyond the size that was said")
          .in_file(bucket_->client().shown(key_))
          .at(offset);
    std::vector<Full> full;
    {
      const std::lock_guard lock(mutex_);
      begin();
      for (std::uint64_t at = offset; at < end;) {
        const PartPlace place = placed(at);
        const std::uint64_t next = std::min(end, place.end);
        add(place, at, bytes.subspan(at - offset, next - at), full);
        at = next;
      }
      end_ = std::max(end_, end);
    }
    send(full);
  }

  bool complete(bool only_new) {
    const std::lock_guard lock(mutex_);
    begin();
    std::vector<Full> rest;
    std::vector<std::byte> zeros;
    for (std::uint64_t at = 0; at < end_;) {
      const PartPlace place = placed(at);
      const std::uint64_t size = std::min(place.end, end_) - place.begin;
      at = place.end;
      if (sent_.contains(place.number)) continue;
      const auto open = open_.find(place.number);
      if (open == open_.end() && zeros.size() < size) {
        send_locked(rest);  // first those that lie in what is moved now
        zeros.resize(size);
      }
      Full& full = rest.emplace_back();
      full.part.number = place.number;
      if (open != open_.end()) {
        full.block = filled(open->second, size);
        full.part.bytes = {Bytes(full.block.get(), size)};
      } else {
        full.part.bytes = {Bytes(zeros).first(size)};
      }
      if (rest.size() == kMostAtATime) send_locked(rest);
    }
    if (end_ == 0) rest.push_back({{1, {}, {}}});
    send_locked(rest);
    const bool done = complete_upload(bucket_->client(), key_, upload_, etags_, end_, token_, only_new);
    if (done) upload_.clear();
    return done;
  }

 private:
  static constexpr std::size_t kMostAtATime = 8;  // parts that commit() sends: they lie in memory anyway

  // Not filled with zeros, which would take as long as the copy into it.
  using Block = std::unique_ptr<std::byte[]>;
  // A part of which some bytes are there.
  struct Open {
    Block block;
    Covered covered;
  };
  // One that can be sent: from the caller's memory, from its own, or its front from the one and its end from
  // the other.
  struct Full {
    Part part;
    Block block = nullptr;
  };

  PartPlace placed(std::uint64_t offset) const {
    PartPlace place = cuts_.at(offset);
    if (said_ != 0) place.end = std::min(place.end, said_);
    if (place.number > kMostParts)
      throw Error(ErrorCode::kLimit, fmt::format("more than {} parts", kMostParts))
          .in_file(bucket_->client().shown(key_));
    return place;
  }

  // With zeros where nobody wrote.
  static Block filled(Open& open, std::uint64_t size) {
    std::uint64_t at = 0;
    for (const auto& [begin, end] : open.covered.runs()) {
      std::fill(open.block.get() + at, open.block.get() + begin, std::byte{0});
      at = end;
    }
    std::fill(open.block.get() + std::min(at, size), open.block.get() + size, std::byte{0});
    return std::move(open.block);
  }

  void begin() {
    if (upload_.empty()) upload_ = begin_upload(bucket_->client(), key_, {{kToken, token_}});
  }

  void add(const PartPlace& place, std::uint64_t at, Bytes bytes, std::vector<Full>& full) {
    if (bytes.empty()) return;
    if (sent_.contains(place.number))
      throw Error(ErrorCode::kUnsupported, "bytes that were sent to an object store cannot be written again")
          .in_file(bucket_->client().shown(key_))
          .at(at);
    const std::uint64_t size = place.end - place.begin;
    const std::uint64_t before = at - place.begin;
    Open& part = open_[place.number];
    // What ends a part can be sent from where it lies.
    const bool ends_it = before + bytes.size() == size && (before == 0 || part.covered.all(0, before));
    if (!ends_it) {
      if (part.block == nullptr) part.block = new_block(size);
      std::memcpy(part.block.get() + before, bytes.data(), bytes.size());
      part.covered.add(before, before + bytes.size());
      if (!part.covered.all(0, size)) return;
    }
    Full& done = full.emplace_back();
    done.block = std::move(part.block);
    done.part.number = place.number;
    const std::uint64_t own = ends_it ? before : size;
    if (own > 0) done.part.bytes.emplace_back(done.block.get(), own);
    if (ends_it) done.part.bytes.push_back(bytes);
    sent_[place.number] = true;
    open_.erase(place.number);
  }

  void send(std::vector<Full>& full) {
    if (full.empty()) return;
    std::vector<Part> parts = take(full);
    put_parts(bucket_->client(), key_, upload_, parts);
    const std::lock_guard lock(mutex_);
    note(parts);
    for (Full& one : full)
      if (one.block != nullptr && said_ != 0) spare_ = std::move(one.block);
  }

  // Memory that was used before has all its pages.
  Block new_block(std::uint64_t size) {
    if (spare_ != nullptr) return std::move(spare_);
    return Block(new std::byte[said_ != 0 ? cuts_.at(0).end : size]);
  }

  void send_locked(std::vector<Full>& full) {
    if (full.empty()) return;
    std::vector<Part> parts = take(full);
    put_parts(bucket_->client(), key_, upload_, parts);
    note(parts);
    full.clear();
  }

  static std::vector<Part> take(const std::vector<Full>& full) {
    std::vector<Part> parts;
    for (const Full& one : full) parts.push_back(one.part);
    return parts;
  }
  void note(const std::vector<Part>& parts) {
    for (const Part& part : parts) etags_[part.number] = part.etag;
  }

  const std::shared_ptr<Bucket> bucket_;
  const std::string key_;
  const std::uint64_t said_;  // 0: nobody knows how large it will be
  const Cuts cuts_;
  const std::string token_ = random_token();
  std::mutex mutex_;
  std::string upload_;
  std::uint64_t end_ = 0;
  std::map<int, Open> open_;
  Block spare_;               // as large as each part, where all are of one length
  std::map<int, bool> sent_;  // or being sent
  std::map<int, std::string> etags_;
};

class ObjectWriter final : public FileWriter {
 public:
  ObjectWriter(std::shared_ptr<Bucket> bucket, std::string prefix, std::string key,
               const CreateOptions& options)
      : bucket_(std::move(bucket)),
        prefix_(std::move(prefix)),
        key_(std::move(key)),
        shown_(bucket_->client().shown(key_)),
        options_(options),
        most_gathered_(options.expected    ? kMostAtOnce
                       : !options.in_place ? kMostGathered
                                           : kPatienceForParts) {
    if (options.size > most_gathered_)
      parted_ = std::make_unique<PartedObject>(bucket_, key_, options.size);
    else
      gathered_.reserve(options.size);
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::uint64_t end = checked_add<std::uint64_t>(offset, bytes.size());
    PartedObject* parted = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (parted_ == nullptr && end > most_gathered_) go_on_in_parts();
      parted = parted_.get();
      if (parted == nullptr) {
        if (end > gathered_.size()) gathered_.resize(end);
        if (!bytes.empty()) {
          std::memcpy(gathered_.data() + offset, bytes.data(), bytes.size());
          covered_.add(offset, end);
        }
      }
    }
    if (parted != nullptr) parted->write(offset, bytes);
  }

  bool prefers_long_writes() const override {
    const std::lock_guard lock(mutex_);
    return parted_ != nullptr;
  }

  bool read_back(std::uint64_t offset, std::span<std::byte> to) override {
    const std::lock_guard lock(mutex_);
    if (parted_ != nullptr) return false;
    check_range(offset, to.size(), gathered_.size(), shown_);
    if (!to.empty()) std::memcpy(to.data(), gathered_.data() + offset, to.size());
    return true;
  }

  void commit() override {
    Client& client = bucket_->client();
    const bool only_new = !options_.replace;
    if (parted_ != nullptr) {
      const bool taken = only_new && head(client, key_);
      if (taken || !parted_->complete(only_new)) throw is_there_already(shown_);
      return;
    }
    const Bytes bytes(gathered_);
    if (!bucket_->keeps_apart(prefix_)) {
      if (only_new && head(client, key_)) throw is_there_already(shown_);
      put(client, key_, bytes, {}, false);
    } else if (options_.replace) {
      replace_chained(client, key_, bytes, options_.expected);
    } else if (!(options_.in_place ? put(client, key_, bytes, {}, true)
                                   : create_chained(client, key_, bytes))) {
      throw is_there_already(shown_);
    }
  }

 private:
  // It is larger than anybody said. The caller holds the mutex, and nobody else writes to the new one yet.
  void go_on_in_parts() {
    if (options_.expected)
      throw Error(ErrorCode::kLimit, "too large to be replaced only if it is unchanged").in_file(shown_);
    parted_ = std::make_unique<PartedObject>(bucket_, key_, 0);
    for (const auto& [begin, end] : covered_.runs())
      parted_->write(begin, Bytes(gathered_).subspan(begin, end - begin));
    gathered_ = {};
  }

  const std::shared_ptr<Bucket> bucket_;
  const std::string prefix_;
  const std::string key_;
  const std::string shown_;
  const CreateOptions options_;
  const std::uint64_t most_gathered_;
  mutable std::mutex mutex_;
  std::vector<std::byte> gathered_;
  Covered covered_;  // what of it was written
  std::unique_ptr<PartedObject> parted_;
};

}  // namespace

std::unique_ptr<FileWriter> object_writer(std::shared_ptr<Bucket> bucket, std::string prefix, std::string key,
                                          const CreateOptions& options) {
  check_key(bucket->client(), key);
  return std::make_unique<ObjectWriter>(std::move(bucket), std::move(prefix), std::move(key), options);
}

}  // namespace cairn::s3
