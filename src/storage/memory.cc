// Files in memory: for tests, for the parts of one program, and as the fastest of places.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/source.h"
#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/file_names.h"
#include "storage/kinds.h"

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
  std::chrono::system_clock::time_point modified;  // committed
};
using Files = std::map<std::string, std::shared_ptr<Contents>, std::less<>>;

// What several folders share: a tree of files, by their paths from its root.
struct Tree {
  const std::uint64_t number = next_version();
  std::mutex mutex;
  Files files;
  std::set<std::string, std::less<>> folders;  // that were made; one that has a file in it is there as well
  std::set<std::string, std::less<>> locks;    // that somebody has

  // The caller holds the mutex.
  bool has_folder(const std::string& path) const {
    if (path.empty() || folders.contains(path)) return true;
    const auto inside = files.lower_bound(path + "/");
    return inside != files.end() && inside->first.starts_with(path + "/");
  }
};

class MemoryLock final : public FileLock {
 public:
  MemoryLock(std::shared_ptr<Tree> tree, std::string path) : tree_(std::move(tree)), path_(std::move(path)) {
    const std::lock_guard lock(tree_->mutex);
    if (!tree_->locks.insert(path_).second)
      throw Error(ErrorCode::kConflict, "somebody else holds this lock").in_file(path_);
  }
  ~MemoryLock() override {
    const std::lock_guard lock(tree_->mutex);
    tree_->locks.erase(path_);
  }
  bool is_exclusive() const override { return true; }

 private:
  std::shared_ptr<Tree> tree_;
  std::string path_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::shared_ptr<Contents> contents, std::string name)
      : contents_(std::move(contents)), name_(std::move(name)) {}

  std::uint64_t size() const override { return contents_->bytes.size(); }
  const std::string& name() const override { return name_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), size(), name_);
    std::copy_n(contents_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
  }

 private:
  std::shared_ptr<Contents> contents_;
  std::string name_;
};

class MemoryFileSystem final : public FileSystem {
 public:
  // `folder` is the path from the tree's root, and empty for the root itself.
  MemoryFileSystem(std::shared_ptr<Tree> tree, std::string folder, std::string root,
                   std::vector<std::string> made = {})
      : tree_(std::move(tree)), folder_(std::move(folder)), root_(std::move(root)), made_(std::move(made)) {}

  // One process: whoever is kept out at all is kept out, and there is no disk to wait for.
  Capabilities capabilities() const override {
    return {.atomic_rename = true,
            .exclusive_create = true,
            .replace_if_unchanged = true,
            .append = true,
            .ranged_writes = true,
            .locks_across_machines = true,
            .directory_sync = true,
            .modification_times = true};
  }
  const std::string& root() const override { return root_; }
  std::string identity() const override { return fmt::format("memory:{}:{}", tree_->number, folder_); }
  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override;
  std::shared_ptr<const ByteSource> open(std::string_view name) const override;
  std::optional<FileEntry> stat(std::string_view name) const override;
  std::vector<FileEntry> entries(std::string_view folder) const override;
  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override;
  void remove_made_folders() noexcept override;
  std::optional<std::string> version_of(std::string_view name) const override;
  std::optional<std::chrono::system_clock::time_point> modified(std::string_view name) const override;
  void rename(std::string_view from, std::string_view to) override;
  void remove(std::string_view name) override;
  void sync_directory() override {}
  std::unique_ptr<FileLock> lock(std::string_view name) override;
  std::optional<std::uint64_t> free_space() const override { return std::nullopt; }

 private:
  class Writer;

  std::string path_of(std::string_view name) const {
    return folder_.empty() ? std::string(name) : fmt::format("{}/{}", folder_, name);
  }
  std::string shown(std::string_view name) const { return fmt::format("{}/{}", root_, name); }

  // The caller holds the lock.
  Files::iterator find(std::string_view name) const {
    const auto found = tree_->files.find(path_of(name));
    if (found == tree_->files.end()) throw Error(ErrorCode::kNotFound, "no such file").in_file(shown(name));
    return found;
  }

  std::shared_ptr<Tree> tree_;  // shared with writers, locks and other folders, which may outlive this
  std::string folder_;
  std::string root_;
  std::vector<std::string> made_;  // folders that were made for this one, the deepest first
};

class MemoryFileSystem::Writer final : public FileWriter {
 public:
  Writer(std::shared_ptr<Tree> tree, std::string path, std::string shown, const CreateOptions& options)
      : tree_(std::move(tree)), path_(std::move(path)), shown_(std::move(shown)), options_(options) {
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
    check_range(offset, to.size(), contents_->bytes.size(), shown_);
    std::copy_n(contents_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return true;
  }

  void commit() override {
    const std::lock_guard lock(tree_->mutex);
    const auto old = tree_->files.find(path_);
    const bool there = old != tree_->files.end();
    if (tree_->has_folder(path_) || (!options_.replace && there))
      throw Error(ErrorCode::kConflict, "there is a file of this name already").in_file(shown_);
    if (options_.expected && (!there || std::to_string(old->second->version) != *options_.expected))
      throw Error(ErrorCode::kConflict, "another file has this name by now").in_file(shown_);
    contents_->modified = std::chrono::system_clock::now();
    tree_->files[path_] = contents_;
  }

 private:
  std::shared_ptr<Tree> tree_;
  std::string path_;
  std::string shown_;
  CreateOptions options_;
  std::shared_ptr<Contents> contents_ = std::make_shared<Contents>();
};

std::unique_ptr<FileWriter> MemoryFileSystem::create(std::string_view name, const CreateOptions& options) {
  check_file_name(name);
  if (!options.replace && stat(name))
    throw Error(ErrorCode::kConflict, "there is a file of this name already").in_file(shown(name));
  return std::make_unique<Writer>(tree_, path_of(name), shown(name), options);
}

std::shared_ptr<const ByteSource> MemoryFileSystem::open(std::string_view name) const {
  check_steps(name);
  const std::lock_guard lock(tree_->mutex);
  return std::make_shared<MemorySource>(find(name)->second, shown(name));
}

std::optional<FileEntry> MemoryFileSystem::stat(std::string_view name) const {
  check_file_name(name);
  const std::lock_guard lock(tree_->mutex);
  const auto found = tree_->files.find(path_of(name));
  if (found == tree_->files.end()) return std::nullopt;
  return FileEntry{std::string(name), found->second->bytes.size()};
}

std::vector<FileEntry> MemoryFileSystem::entries(std::string_view folder) const {
  if (!folder.empty()) check_steps(folder);
  const std::string inside = folder.empty() ? folder_ : path_of(folder);
  const std::string prefix = inside.empty() ? "" : inside + "/";
  std::map<std::string, FileEntry> found;
  const auto add = [&](const std::string& path, std::uint64_t size, FileEntry::Kind kind) {
    const std::string_view rest = std::string_view(path).substr(prefix.size());
    const std::string name(rest.substr(0, rest.find('/')));
    const bool deeper = name.size() < rest.size();
    found[name] = deeper ? FileEntry{name, 0, FileEntry::Kind::kFolder} : FileEntry{name, size, kind};
  };
  const std::lock_guard lock(tree_->mutex);
  const auto& [files, folders] = std::tie(tree_->files, tree_->folders);
  for (auto at = folders.lower_bound(prefix); at != folders.end() && at->starts_with(prefix); ++at)
    add(*at, 0, FileEntry::Kind::kFolder);
  for (auto at = files.lower_bound(prefix); at != files.end() && at->first.starts_with(prefix); ++at)
    add(at->first, at->second->bytes.size(), FileEntry::Kind::kFile);
  std::vector<FileEntry> entries;
  for (auto& [name, entry] : found) entries.push_back(std::move(entry));
  return entries;
}

std::unique_ptr<FileSystem> MemoryFileSystem::enter(std::string_view folder, bool create) const {
  check_file_name(folder);
  std::string path = path_of(folder);
  const std::lock_guard lock(tree_->mutex);
  if (tree_->files.contains(path))
    throw Error(create ? ErrorCode::kConflict : ErrorCode::kNotFound, "is a file, not a folder")
        .in_file(shown(folder));
  const bool there = tree_->has_folder(path);
  if (!there && !create) throw Error(ErrorCode::kNotFound, "no such folder").in_file(shown(folder));
  std::vector<std::string> made = made_;
  if (!there) made.insert(made.begin(), path);
  auto entered = std::make_unique<MemoryFileSystem>(tree_, path, shown(folder), std::move(made));
  if (!there) tree_->folders.insert(std::move(path));  // last: whatever fails before it leaves nothing behind
  return entered;
}

void MemoryFileSystem::remove_made_folders() noexcept {
  const std::lock_guard lock(tree_->mutex);
  for (const std::string& folder : made_) tree_->folders.erase(folder);
}

std::optional<std::string> MemoryFileSystem::version_of(std::string_view name) const {
  check_file_name(name);
  const std::lock_guard lock(tree_->mutex);
  const auto found = tree_->files.find(path_of(name));
  if (found == tree_->files.end()) return std::nullopt;
  return std::to_string(found->second->version);
}

std::optional<std::chrono::system_clock::time_point> MemoryFileSystem::modified(std::string_view name) const {
  check_file_name(name);
  const std::lock_guard lock(tree_->mutex);
  const auto found = tree_->files.find(path_of(name));
  if (found == tree_->files.end()) return std::nullopt;
  return found->second->modified;
}

void MemoryFileSystem::rename(std::string_view from, std::string_view to) {
  check_file_name(from);
  check_file_name(to);
  const std::lock_guard lock(tree_->mutex);
  const auto found = find(from);
  if (from == to) return;
  std::shared_ptr<Contents> contents = std::move(found->second);
  tree_->files.erase(found);
  tree_->files[path_of(to)] = std::move(contents);
}

void MemoryFileSystem::remove(std::string_view name) {
  check_file_name(name);
  const std::lock_guard lock(tree_->mutex);
  tree_->files.erase(find(name));
}

std::unique_ptr<FileLock> MemoryFileSystem::lock(std::string_view name) {
  check_file_name(name);
  return std::make_unique<MemoryLock>(tree_, path_of(name));
}

// The trees that have a name, for as long as the process lives. The only list of its kind: a name that two
// parts of a program agree on has to be written down somewhere.
std::shared_ptr<Tree> tree_named(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Tree>> trees;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Tree>& tree = trees[name];
  if (tree == nullptr) tree = std::make_shared<Tree>();
  return tree;
}

// The steps of "name/folder/file"; slashes at the end and double ones do not count.
std::vector<std::string> steps_of(const std::string& rest) {
  std::vector<std::string> steps;
  for (std::size_t begin = 0; begin < rest.size();) {
    const std::size_t end = std::min(rest.find('/', begin), rest.size());
    if (end > begin) steps.push_back(rest.substr(begin, end - begin));
    begin = end + 1;
  }
  if (steps.empty())
    throw Error(ErrorCode::kInvalidArgument, "a folder in memory has a name: memory://name")
        .in_file("memory://");
  for (const std::string& step : steps) check_file_name(step);
  return steps;
}

}  // namespace

std::unique_ptr<FileSystem> memory_file_system() {
  return std::make_unique<MemoryFileSystem>(std::make_shared<Tree>(), "", "memory");
}

std::unique_ptr<FileSystem> shared_memory_folder(const std::string& rest, const FileSystemOptions& options) {
  const std::vector<std::string> steps = steps_of(rest);
  std::unique_ptr<FileSystem> folder =
      std::make_unique<MemoryFileSystem>(tree_named(steps.front()), "", "memory://" + steps.front());
  try {
    for (std::size_t i = 1; i < steps.size(); ++i) folder = folder->enter(steps[i], options.create);
  } catch (...) {
    folder->remove_made_folders();
    throw;
  }
  return folder;
}

Place find_in_memory(const std::string& rest, const FileSystemOptions& options) {
  std::vector<std::string> steps = steps_of(rest);
  std::shared_ptr<FileSystem> folder =
      std::make_unique<MemoryFileSystem>(tree_named(steps.front()), "", "memory://" + steps.front());
  if (folder->entries().empty() && steps.size() == 1) return {};
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (i + 1 == steps.size() && folder->stat(steps[i])) return {std::move(folder), steps[i]};
    const std::vector<FileEntry> there = folder->entries();
    const auto is_it = [&](const FileEntry& e) {
      return e.name == steps[i] && e.kind == FileEntry::Kind::kFolder;
    };
    if (std::none_of(there.begin(), there.end(), is_it)) return {};
    folder = folder->enter(steps[i], options.create);
  }
  return {std::move(folder), ""};
}

}  // namespace cairn
