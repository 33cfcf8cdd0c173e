#include "storage/s3/file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/source.h"
#include "cairn/error.h"
#include "storage/file_names.h"
#include "storage/kinds.h"
#include "storage/s3/folder.h"
#include "storage/s3/generations.h"
#include "storage/s3/lock.h"
#include "storage/s3/objects.h"
#include "storage/s3/source.h"
#include "storage/s3/writer.h"

namespace cairn::s3 {
namespace {

constexpr std::uint64_t kMostMoved = std::uint64_t{64} << 20;  // through our own memory
constexpr std::size_t kShortestBucket = 3, kLongestBucket = 255;

class BucketFolder final : public FileSystem {
 public:
  BucketFolder(std::shared_ptr<Bucket> bucket, std::string prefix, std::optional<Folder> seen = std::nullopt)
      : bucket_(std::move(bucket)),
        prefix_(std::move(prefix)),
        root_(client().shown(prefix_)),
        seen_(std::move(seen)) {
    while (root_.ends_with('/')) root_.pop_back();
  }

  Capabilities capabilities() const override {
    const bool keeps_apart = bucket_->keeps_apart(prefix_);
    return {.exclusive_create = keeps_apart,
            .replace_if_unchanged = keeps_apart,
            .append = true,
            .ranged_writes = true,
            .modification_times = true};
  }
  bool is_far() const override { return true; }
  const std::string& root() const override { return root_; }
  std::string identity() const override {
    return fmt::format("s3:{}:{}:{}", client().settings().endpoint, client().bucket(), prefix_);
  }

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    check_file_name(name);
    std::string key = key_of(name);
    if (options.expected && !bucket_->keeps_apart(prefix_))
      throw Error(ErrorCode::kUnsupported,
                  "this object store cannot replace an object only if it is unchanged")
          .in_file(client().shown(key));
    // Who says that nobody looks for the name, or which file it has, is believed: that spares requests.
    if (!options.in_place && !options.expected &&
        ((!options.replace && head(client(), key)) || any(client(), key + "/")))
      throw Error(ErrorCode::kConflict, "there is a file or a folder of this name already")
          .in_file(client().shown(key));
    return object_writer(bucket_, prefix_, std::move(key), options);
  }

  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    check_steps(name);
    Generation found = require(name);
    mend(client(), key_of(name), found);
    return object_source(bucket_, std::move(found.key), found.size, std::move(found.etag));
  }

  std::optional<FileEntry> stat(std::string_view name) const override {
    check_file_name(name);
    if (const auto found = find(name)) return FileEntry{std::string(name), found->size};
    if (seen_) return std::nullopt;
    if (const auto left = find_leftover(client(), prefix_, name))
      return FileEntry{std::string(name), left->size};
    return std::nullopt;
  }

  std::vector<FileEntry> entries(std::string_view folder) const override {
    if (folder.empty()) return seen_ ? seen_->entries : look_into(client(), prefix_).entries;
    check_steps(folder);
    return look_into(client(), key_of(folder) + "/").entries;
  }

  std::shared_ptr<const FileSystem> as_of_now() const override {
    return std::make_shared<BucketFolder>(bucket_, prefix_, look_into(client(), prefix_, "", false));
  }

  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override {
    check_file_name(folder);
    std::string prefix = key_of(folder) + "/";
    check_key(client(), prefix);
    if (!is_made(folder, create) && !any(client(), prefix))
      throw Error(ErrorCode::kNotFound, "no such folder").in_file(client().shown(key_of(folder)));
    return bucket_folder(bucket_, std::move(prefix));
  }

  std::optional<std::string> version_of(std::string_view name) const override {
    check_file_name(name);
    const auto found = newest(client(), key_of(name));
    return found ? std::optional(found->version()) : std::nullopt;
  }

  std::optional<std::chrono::system_clock::time_point> modified(std::string_view name) const override {
    check_file_name(name);
    if (const auto found = find(name)) return found->modified;
    if (const auto left = find_leftover(client(), prefix_, name)) return left->modified;
    return std::nullopt;
  }

  void rename(std::string_view from, std::string_view to) override {
    check_file_name(from);
    check_file_name(to);
    const Generation old = require(from);
    if (from == to) return;
    const std::string key = key_of(to);
    if (old.size > kMostMoved) {
      copy_large(client(), old.key, old.etag, old.size, key);
    } else {
      const std::string bytes = read_all(*object_source(bucket_, old.key, old.size, old.etag));
      if (bucket_->keeps_apart(prefix_))
        replace_chained(client(), key, as_bytes(bytes), std::nullopt);
      else
        put(client(), key, as_bytes(bytes), {}, false);
    }
    remove_chained(client(), key_of(from));
  }

  void remove(std::string_view name) override {
    check_file_name(name);
    try {
      remove_chained(client(), key_of(name));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFound) throw;
      const auto left = find_leftover(client(), prefix_, name);
      if (!left) throw;
      remove_leftover(client(), *left);
    }
  }

  void remove_all(std::span<const std::string> names) override {
    if (names.size() < 2) return FileSystem::remove_all(names);
    const Folder here = look_into(client(), prefix_, "", std::any_of(names.begin(), names.end(), is_partial));
    std::vector<std::string> keys, chained;
    for (const std::string& name : names) {
      const auto file = here.files.find(name);
      if (file == here.files.end()) continue;
      if (file->second.records.empty())
        keys.push_back(key_of(name));
      else
        chained.push_back(name);
    }
    s3::remove(client(), keys);
    FileSystem::remove_all(chained);
    const std::set<std::string_view> wanted(names.begin(), names.end());
    for (const Leftover& leftover : here.leftovers)
      if (wanted.contains(leftover.shown)) remove_leftover(client(), leftover);
  }

  void sync_directory() override {}
  std::unique_ptr<FileLock> lock(std::string_view name) override {
    check_file_name(name);
    return std::make_unique<ObjectLock>(bucket_, key_of(name));
  }
  std::optional<std::uint64_t> free_space() const override { return std::nullopt; }

 private:
  Client& client() const { return bucket_->client(); }
  std::string key_of(std::string_view name) const { return prefix_ + std::string(name); }

  // There are no empty folders; one that was to be made is there for whoever wanted it.
  bool is_made(std::string_view folder, bool now) const {
    const std::lock_guard lock(mutex_);
    if (now) made_.emplace(folder);
    return made_.contains(folder);
  }

  std::optional<Generation> find(std::string_view name) const {
    if (!seen_ || name.find('/') != name.npos) return newest(client(), key_of(name));
    const auto found = seen_->files.find(name);
    return found == seen_->files.end() ? std::nullopt : std::optional(found->second);
  }
  Generation require(std::string_view name) const {
    auto found = find(name);
    if (!found) throw Error(ErrorCode::kNotFound, "no such file").in_file(client().shown(key_of(name)));
    return std::move(*found);
  }

  std::shared_ptr<Bucket> bucket_;
  std::string prefix_;  // empty, or with a slash at its end
  std::string root_;
  const std::optional<Folder> seen_;  // as_of_now(): what was here then
  mutable std::mutex mutex_;
  mutable std::set<std::string, std::less<>> made_;
};

// "bucket/run/step-1000" in its parts. Slashes at the end and double ones do not count.
struct Address {
  std::string bucket;
  std::string folder;  // of what is named, with a slash at its end, or empty
  std::string name;    // the last step; empty for the bucket itself
  bool is_folder = false;
  std::string prefix() const { return name.empty() ? "" : folder + name + "/"; }
};

Address address_of(const std::string& rest) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kInvalidArgument, why).in_file("s3://" + rest);
  };
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  Address address;
  address.is_folder = rest.ends_with('/');
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  address.bucket = rest.substr(0, slash);
  if (address.bucket.size() < kShortestBucket || address.bucket.size() > kLongestBucket ||
      !std::all_of(address.bucket.begin(), address.bucket.end(), allowed))
    refuse("a bucket is named by three or more letters, digits, dots and dashes: s3://bucket/run/step-1000");
  for (std::size_t begin = slash; begin < rest.size();) {
    const std::size_t end = std::min(rest.find('/', begin), rest.size());
    const std::string step = rest.substr(begin, end - begin);
    begin = end + 1;
    if (step.empty()) continue;
    check_file_name(step);
    if (!address.name.empty()) address.folder += address.name + "/";
    address.name = step;
  }
  return address;
}

}  // namespace

std::unique_ptr<FileSystem> bucket_folder(std::shared_ptr<Bucket> bucket, std::string prefix) {
  return std::make_unique<BucketFolder>(std::move(bucket), std::move(prefix));
}

}  // namespace cairn::s3

namespace cairn {

std::unique_ptr<FileSystem> object_store_folder(const std::string& rest, const FileSystemOptions& options) {
  const s3::Address address = s3::address_of(rest);
  auto bucket = s3::bucket_named(address.bucket);
  const std::string prefix = address.prefix();
  s3::check_key(bucket->client(), prefix);
  if (!options.create && !s3::any(bucket->client(), prefix) && !prefix.empty())
    throw Error(ErrorCode::kNotFound, "nothing is there").in_file(bucket->client().shown(prefix));
  return s3::bucket_folder(std::move(bucket), prefix);
}

Place find_in_object_store(const std::string& rest, const FileSystemOptions&) {
  const s3::Address address = s3::address_of(rest);
  const auto bucket = s3::bucket_named(address.bucket);
  const std::string prefix = address.prefix(), key = address.folder + address.name;
  if (s3::any(bucket->client(), prefix)) return {s3::bucket_folder(bucket, prefix), ""};
  if (!address.name.empty() && !address.is_folder && s3::head(bucket->client(), key))
    return {s3::bucket_folder(bucket, address.folder), address.name};
  return {};
}

}  // namespace cairn
