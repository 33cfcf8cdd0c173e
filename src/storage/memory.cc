// Files in memory: for tests, and as the fastest of places.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/file_names.h"

namespace cairn {
namespace {

std::uint64_t next_version() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// The bytes of one file. Writers hold the lock for each copy; a committed file is never written again.
struct Contents {
  std::mutex mutex;
  std::vector<std::byte> bytes;
  const std::uint64_t version = next_version();
};
using Files = std::map<std::string, std::shared_ptr<Contents>, std::less<>>;

// The names of the locks that somebody has.
struct Held {
  std::mutex mutex;
  std::set<std::string, std::less<>> names;
};

class MemoryLock final : public FileLock {
 public:
  MemoryLock(std::shared_ptr<Held> held, std::string_view name) : held_(std::move(held)), name_(name) {
    const std::lock_guard lock(held_->mutex);
    if (!held_->names.insert(name_).second)
      throw Error(ErrorCode::kConflict, "somebody else holds this lock").in_file(name_);
  }
  ~MemoryLock() override {
    const std::lock_guard lock(held_->mutex);
    held_->names.erase(name_);
  }
  bool is_exclusive() const override { return true; }

 private:
  std::shared_ptr<Held> held_;
  std::string name_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::shared_ptr<Contents> contents, std::string name)
      : contents_(std::move(contents)), name_(std::move(name)) {}

  std::uint64_t size() const override { return contents_->bytes.size(); }
  const std::string& name() const override { return name_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset > size() || to.size() > size() - offset) {
      throw Error(ErrorCode::kCorrupt, fmt::format("{} bytes wanted of a file of {}", to.size(), size()))
          .in_file(name_)
          .at(offset);
    }
    std::copy_n(contents_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
  }

 private:
  std::shared_ptr<Contents> contents_;
  std::string name_;
};

class MemoryFileSystem final : public FileSystem {
 public:
  const std::string& root() const override { return root_; }
  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override;
  std::shared_ptr<const ByteSource> open(std::string_view name) const override;
  std::optional<FileEntry> stat(std::string_view name) const override;
  std::vector<FileEntry> list() const override;
  std::optional<std::string> version_of(std::string_view name) const override;
  void rename(std::string_view from, std::string_view to) override;
  void remove(std::string_view name) override;
  void sync_directory() override {}
  std::unique_ptr<FileLock> lock(std::string_view name) override;
  std::optional<std::uint64_t> free_space() const override { return std::nullopt; }

 private:
  class Writer;

  // The caller holds the lock.
  Files::iterator find(std::string_view name) {
    const auto found = files_->find(name);
    if (found == files_->end()) throw Error(ErrorCode::kNotFound, "no such file").in_file(std::string(name));
    return found;
  }

  std::string root_ = "memory";
  // Shared with the writers, which may outlive this.
  std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  std::shared_ptr<Files> files_ = std::make_shared<Files>();
  std::shared_ptr<Held> held_ = std::make_shared<Held>();
};

class MemoryFileSystem::Writer final : public FileWriter {
 public:
  Writer(const MemoryFileSystem& files, std::string_view name, const CreateOptions& options)
      : mutex_(files.mutex_), files_(files.files_), name_(name), options_(options) {
    contents_->bytes.reserve(options.size);
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(contents_->mutex);
    const std::uint64_t end = checked_add<std::uint64_t>(offset, bytes.size());
    if (end > contents_->bytes.size()) contents_->bytes.resize(end);
    std::copy(bytes.begin(), bytes.end(), contents_->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  }

  bool read_back(std::uint64_t offset, std::span<std::byte> to) override {
    const std::lock_guard lock(contents_->mutex);
    const std::uint64_t end = checked_add<std::uint64_t>(offset, to.size());
    if (end > contents_->bytes.size()) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("the file ends {} bytes early", end - contents_->bytes.size()))
          .in_file(name_)
          .at(offset);
    }
    std::copy_n(contents_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return true;
  }

  void commit() override {
    if (options_.last_check) options_.last_check();
    const std::lock_guard lock(*mutex_);
    if (!options_.replace && files_->contains(name_)) {
      throw Error(ErrorCode::kConflict, "there is a file of this name already").in_file(name_);
    }
    (*files_)[name_] = contents_;
  }

 private:
  std::shared_ptr<std::mutex> mutex_;
  std::shared_ptr<Files> files_;
  std::string name_;
  CreateOptions options_;
  std::shared_ptr<Contents> contents_ = std::make_shared<Contents>();
};

std::unique_ptr<FileWriter> MemoryFileSystem::create(std::string_view name, const CreateOptions& options) {
  check_file_name(name);
  if (!options.replace && stat(name)) {
    throw Error(ErrorCode::kConflict, "there is a file of this name already").in_file(name);
  }
  return std::make_unique<Writer>(*this, name, options);
}

std::shared_ptr<const ByteSource> MemoryFileSystem::open(std::string_view name) const {
  const std::lock_guard lock(*mutex_);
  const auto found = files_->find(name);
  if (found == files_->end()) throw Error(ErrorCode::kNotFound, "no such file").in_file(name);
  return std::make_shared<MemorySource>(found->second, found->first);
}

std::optional<FileEntry> MemoryFileSystem::stat(std::string_view name) const {
  const std::lock_guard lock(*mutex_);
  const auto found = files_->find(name);
  if (found == files_->end()) return std::nullopt;
  return FileEntry{found->first, found->second->bytes.size()};
}

std::vector<FileEntry> MemoryFileSystem::list() const {
  const std::lock_guard lock(*mutex_);
  std::vector<FileEntry> entries;
  for (const auto& [name, contents] : *files_) entries.push_back({name, contents->bytes.size()});
  return entries;
}

std::optional<std::string> MemoryFileSystem::version_of(std::string_view name) const {
  const std::lock_guard lock(*mutex_);
  const auto found = files_->find(name);
  if (found == files_->end()) return std::nullopt;
  return std::to_string(found->second->version);
}

void MemoryFileSystem::rename(std::string_view from, std::string_view to) {
  check_file_name(to);
  const std::lock_guard lock(*mutex_);
  const auto found = find(from);
  if (from == to) return;
  std::shared_ptr<Contents> contents = std::move(found->second);
  files_->erase(found);
  (*files_)[std::string(to)] = std::move(contents);
}

void MemoryFileSystem::remove(std::string_view name) {
  const std::lock_guard lock(*mutex_);
  files_->erase(find(name));
}

std::unique_ptr<FileLock> MemoryFileSystem::lock(std::string_view name) {
  check_file_name(name);
  return std::make_unique<MemoryLock>(held_, name);
}

}  // namespace

std::unique_ptr<FileSystem> memory_file_system() { return std::make_unique<MemoryFileSystem>(); }

}  // namespace cairn
