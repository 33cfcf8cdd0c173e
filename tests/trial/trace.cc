#include "trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "base/bytes.h"

namespace cairn::trial {
namespace {

using Kind = TraceStep::Kind;
namespace fs = std::filesystem;

std::uint64_t inode_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw std::runtime_error("cannot look at " + path);
  return status.st_ino;
}

FileBytes read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::make_shared<const std::string>(std::istreambuf_iterator<char>(file),
                                             std::istreambuf_iterator<char>());
}

// Calls each(path, file) for all that is there, directories before what they hold.
template <class Each> void walk(const Tree& tree, FileId directory, const std::string& prefix, Each& each) {
  for (const auto& [name, file] : tree.directories.at(directory)) {
    each(prefix + name, file);
    if (tree.directories.contains(file)) walk(tree, file, prefix + name + "/", each);
  }
}

FileId read_into(Tree& tree, FileId directory, FileId last, const fs::path& path) {
  for (const auto& entry : fs::directory_iterator(path)) {
    const FileId file = ++last;
    tree.directories[directory][entry.path().filename().string()] = file;
    if (entry.is_directory()) {
      tree.directories[file];
      last = read_into(tree, file, last, entry.path());
    } else {
      tree.files[file] = read_bytes(entry.path());
    }
  }
  return last;
}

// The directory or file at a path; nothing when it is not there.
std::optional<FileId> find_in(const Tree& tree, const std::string& path) {
  FileId at = 0;
  for (const fs::path& step : fs::path(path)) {
    const auto entries = tree.directories.find(at);
    if (entries == tree.directories.end()) return std::nullopt;
    const auto found = entries->second.find(step.string());
    if (found == entries->second.end()) return std::nullopt;
    at = found->second;
  }
  return at;
}

void resize(FileBytes& bytes, std::uint64_t size, bool may_shrink) {
  const std::uint64_t now = bytes == nullptr ? 0 : bytes->size();
  if (bytes != nullptr && (now == size || (now > size && !may_shrink))) return;
  std::string changed = bytes == nullptr ? std::string() : *bytes;
  changed.resize(size);
  bytes = std::make_shared<const std::string>(std::move(changed));
}

void put(FileBytes& bytes, std::uint64_t offset, const std::string& added) {
  std::string changed = bytes == nullptr ? std::string() : *bytes;
  changed.resize(std::max<std::size_t>(changed.size(), offset + added.size()));
  changed.replace(offset, added.size(), added);
  bytes = std::make_shared<const std::string>(std::move(changed));
}

void forget(Tree& tree, FileId directory, const std::string& name, FileId file) {
  auto& entries = tree.directories[directory];
  const auto found = entries.find(name);
  if (found != entries.end() && found->second == file) entries.erase(found);
}

}  // namespace

std::unique_ptr<std::map<std::string, FileBytes>> Tree::list(const std::string& path) const {
  const auto directory = find_in(*this, path);
  if (!directory || !directories.contains(*directory)) return nullptr;
  auto all = std::make_unique<std::map<std::string, FileBytes>>();
  for (const auto& [name, file] : directories.at(*directory))
    if (const auto found = files.find(file); found != files.end()) (*all)[name] = found->second;
  return all;
}

FileBytes Tree::find(const std::string& path) const {
  const auto file = find_in(*this, path);
  const auto found = file ? files.find(*file) : files.end();
  return found == files.end() ? nullptr : found->second;
}

bool same_names_and_bytes(const Tree& a, const Tree& b) {
  const auto flat = [](const Tree& tree) {
    std::map<std::string, std::string> all;
    auto each = [&](const std::string& path, FileId file) {
      const auto found = tree.files.find(file);
      all[path] = found == tree.files.end() ? "a directory" : *found->second;
    };
    walk(tree, 0, "", each);
    return all;
  };
  return flat(a) == flat(b);
}

Tree read_tree(const std::string& directory) {
  Tree tree;
  read_into(tree, 0, 0, directory);
  return tree;
}

void write_tree(const Tree& tree, const std::string& directory) {
  fs::create_directories(directory);
  auto each = [&](const std::string& path, FileId file) {
    const auto found = tree.files.find(file);
    if (found == tree.files.end()) {
      fs::create_directories(directory + "/" + path);
    } else {
      std::ofstream(directory + "/" + path, std::ios::binary) << *found->second;
    }
  };
  walk(tree, 0, "", each);
}

std::shared_ptr<FileSystem> in_memory(const Tree& tree, const std::string& path) {
  std::shared_ptr<FileSystem> files = memory_file_system();
  const auto all = tree.list(path);
  if (all == nullptr) return files;
  for (const auto& [name, bytes] : *all) {
    const auto file = files->create(name, {.size = bytes->size()});
    file->write_at(0, as_bytes(*bytes));
    file->commit();
  }
  return files;
}

std::string to_string(const TraceStep& step) {
  switch (step.kind) {
    case Kind::kCreate: return fmt::format("create {} as {}", step.name, step.file);
    case Kind::kWrite: return fmt::format("write {} bytes at {} of {}", step.size, step.offset, step.file);
    case Kind::kTruncate: return fmt::format("truncate {} to {}", step.file, step.size);
    case Kind::kAllocate: return fmt::format("allocate {} bytes for {}", step.size, step.file);
    case Kind::kSync: return fmt::format("sync {}", step.file);
    case Kind::kRename: return fmt::format("rename {} to {} ({})", step.name, step.to_name, step.file);
    case Kind::kLink: return fmt::format("link {} as {} ({})", step.name, step.to_name, step.file);
    case Kind::kUnlink: return fmt::format("unlink {} ({})", step.name, step.file);
    case Kind::kReported: return "success is reported";
  }
  return "";
}

void apply(Tree& tree, const TraceStep& step) {
  switch (step.kind) {
    case Kind::kCreate: tree.directories[step.directory][step.name] = step.file; break;
    case Kind::kWrite: put(tree.files[step.file], step.offset, *step.bytes); break;
    case Kind::kTruncate:
    case Kind::kAllocate: resize(tree.files[step.file], step.size, step.kind == Kind::kTruncate); break;
    case Kind::kRename:
      tree.directories[step.to_directory][step.to_name] = step.file;
      forget(tree, step.directory, step.name, step.file);
      break;
    case Kind::kLink: tree.directories[step.to_directory][step.to_name] = step.file; break;
    case Kind::kUnlink: forget(tree, step.directory, step.name, step.file); break;
    case Kind::kSync:
    case Kind::kReported: break;
  }
}

Recorder::Recorder(std::string directory) : directory_(std::move(directory)) {
  trace_.before = read_tree(directory_);
  now_ = trace_.before;
  ids_[inode_of(directory_)] = 0;
  auto each = [&](const std::string& path, FileId file) {
    ids_[inode_of(directory_ + "/" + path)] = file;
    last_ = std::max(last_, file);
  };
  walk(now_, 0, "", each);
}

Recorder::Place Recorder::place_of(const std::string& path) const {
  const std::size_t slash = path.rfind('/');
  const std::string above = slash == path.npos ? "" : path.substr(0, slash);
  const auto directory = find_in(now_, above);
  return {directory.value_or(0), slash == path.npos ? path : path.substr(slash + 1)};
}

FileId Recorder::file_at(const Place& place) const {
  const auto& entries = now_.directories.at(place.directory);
  const auto found = entries.find(place.name);
  return found == entries.end() ? 0 : found->second;
}

FileId Recorder::file_of(int fd) const {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw std::runtime_error("cannot look at an open file");
  return ids_.at(status.st_ino);
}

void Recorder::add(TraceStep step) {
  apply(now_, step);
  trace_.steps.push_back(std::move(step));
}

void Recorder::know(FileId file, const std::string& path) { ids_[inode_of(directory_ + "/" + path)] = file; }

void Recorder::note_create(const Place& place, bool is_directory) {
  TraceStep step{.kind = Kind::kCreate, .file = ++last_, .directory = place.directory, .name = place.name};
  // What is in it is known to nobody before it is written.
  for (Tree* tree : {&now_, &trace_.before}) {
    if (is_directory) {
      tree->directories[last_];
    } else {
      tree->files[last_] = std::make_shared<const std::string>();
    }
  }
  add(std::move(step));
}

void Recorder::note_open(const OsRequest& request, int fd) {
  if ((request.flags & O_TRUNC) != 0) broken_ = "a file is cut when it is opened";
  if ((request.flags & O_TMPFILE) == O_TMPFILE) {  // a file without a name, which is there to be forgotten
    struct stat status {};
    if (::fstat(fd, &status) == 0) ids_[status.st_ino] = ++last_;
    return;
  }
  if ((request.flags & O_CREAT) == 0) return;
  const Place place = place_of(request.path);
  if (file_at(place) == 0) {
    note_create(place, false);
    know(last_, request.path);
  }
  if (file_of(fd) != file_at(place)) broken_ = request.path + " is another file than it should be";
}

void Recorder::note(const OsRequest& request, const OsResult& result) {
  const Place from = place_of(request.path);
  TraceStep step{.directory = from.directory, .name = from.name, .offset = request.offset};
  step.size = request.size;
  switch (request.call) {
    case OsCall::kOpen: return note_open(request, static_cast<int>(result.value));
    case OsCall::kMakeDirectory: note_create(from, true); return know(last_, request.path);
    case OsCall::kWrite:
      step.kind = Kind::kWrite;
      step.size = static_cast<std::uint64_t>(result.value);
      step.bytes =
          std::make_shared<const std::string>(reinterpret_cast<const char*>(request.bytes.data()), step.size);
      break;
    case OsCall::kTruncate: step.kind = Kind::kTruncate; break;
    case OsCall::kAllocate:
      step.kind = Kind::kAllocate;
      step.size += request.offset;
      break;
    case OsCall::kSync: step.kind = Kind::kSync; break;
    case OsCall::kRename:
    case OsCall::kLink: {
      step.kind = request.call == OsCall::kLink ? Kind::kLink : Kind::kRename;
      const Place to = place_of(request.target);
      step.to_directory = to.directory;
      step.to_name = to.name;
      break;
    }
    case OsCall::kUnlink: step.kind = Kind::kUnlink; break;
    default: return;
  }
  step.file = request.fd >= 0 ? file_of(request.fd) : file_at(from);
  add(std::move(step));
}

OsResult Recorder::on(const OsRequest& request, const OsProceed& proceed) {
  const std::lock_guard lock(mutex_);
  const OsResult result = proceed();
  if (!result.ok()) return result;
  try {
    note(request, result);
  } catch (const std::exception& e) {
    broken_ = fmt::format("{} of '{}': {}", request.function, request.path, e.what());
  }
  return result;
}

void Recorder::report() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(reported_, true)) trace_.steps.push_back({});
}

Trace Recorder::finish() {
  if (!broken_.empty()) throw std::runtime_error("the trace is not to be trusted: " + broken_);
  if (!same_names_and_bytes(now_, read_tree(directory_)))
    throw std::runtime_error("the trace does not lead to what is in the directory");
  return std::move(trace_);
}

}  // namespace cairn::trial
