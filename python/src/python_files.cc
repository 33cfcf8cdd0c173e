#include "python_files.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/error.h"
#include "python_file.h"
#include "python_folder.h"

namespace cairn::python {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr std::uint64_t kLookedAt = 8U << 20;  // bytes of either end of a file, to tell it from another

class NoLock final : public FileLock {
 public:
  bool is_exclusive() const override { return false; }
};

class PythonFileSystem final : public FileSystem {
 public:
  explicit PythonFileSystem(std::shared_ptr<const PythonFolder> folder) : folder_(std::move(folder)) {}

  Capabilities capabilities() const override {
    const Abilities can = abilities();
    return {.atomic_rename = can.renames,
            .exclusive_create = can.exclusive,
            .append = true,
            .locks_across_machines = can.directory && can.directory->capabilities().locks_across_machines,
            .directory_sync = can.directory || has("sync_directory")};
  }
  const std::string& root() const override { return folder_->root; }
  std::string identity() const override {
    return in_python(root(), [&] {
      return "python:" + nb::cast<std::string>(nb::str(folder_->fs().type())) + ":" + folder_->root;
    });
  }

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    check_name(name);
    if (options.expected)
      throw Error(ErrorCode::kUnsupported, "a file cannot be replaced only if it is unchanged here")
          .in_file(folder_->shown(name));
    const std::optional<Abilities> can = known();
    const bool alone = can && can->exclusive && !options.replace;
    if (!options.replace && !alone && stat(name))
      throw Error(ErrorCode::kConflict, "there is a file of this name already").in_file(folder_->shown(name));
    const Naming naming = options.in_place && !options.replace ? Naming::kInPlace
                          : alone                              ? Naming::kAlone
                                                               : Naming::kReplaces;
    const char* mode = alone && naming == Naming::kInPlace ? "xb" : "wb";
    return python_writer(folder_, std::string(name), {naming, mode, options.durable, can && can->renames});
  }

  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    check_path(name);
    return python_source(folder_, std::string(name));
  }

  std::optional<FileEntry> stat(std::string_view name) const override {
    check_name(name);
    return in_python(folder_->shown(name), [&]() -> std::optional<FileEntry> {
      const std::unique_ptr<PythonStream> stream = open_if_there(name);
      if (stream == nullptr) return std::nullopt;
      FileEntry entry{std::string(name), stream->size()};
      stream->close();
      return entry;
    });
  }

  // How large they are a listing does not say.
  std::vector<FileEntry> entries(std::string_view folder) const override {
    if (!folder.empty()) check_path(folder);
    return in_python(root(), [&] {
      std::vector<FileEntry> found;
      for (std::string& name : nb::hasattr(folder_->fs(), "ls") ? listed(folder) : names_of_descriptions())
        found.push_back({std::move(name)});
      std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
      return found;
    });
  }

  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override;

  // What is in the file, of a large one in its ends: whoever published it wrote the id of his save there,
  // last.
  std::optional<std::string> version_of(std::string_view name) const override {
    check_name(name);
    return in_python(folder_->shown(name), [&]() -> std::optional<std::string> {
      const std::unique_ptr<PythonStream> stream = open_if_there(name);
      if (stream == nullptr) return std::nullopt;
      const std::uint64_t size = stream->size();
      const std::uint64_t head = std::min(size, kLookedAt), tail = std::min(size - head, kLookedAt);
      std::string bytes(head + tail, '\0');
      const std::span<std::byte> to = std::as_writable_bytes(std::span(bytes));
      const bool whole = stream->read_at(0, to.first(head)) && stream->read_at(size - tail, to.subspan(head));
      stream->close();
      const nb::object sum = nb::module_::import_("hashlib").attr("sha256")(to_bytes(bytes));
      return std::to_string(size) + (whole ? ":" : "?") + to_text(nb::object(sum.attr("hexdigest")()));
    });
  }

  void rename(std::string_view from, std::string_view to) override {
    check_name(from);
    check_name(to);
    const bool in_one_step = abilities().renames;
    in_python(folder_->shown(from), [&] { folder_->rename(from, to, in_one_step); });
  }

  void remove(std::string_view name) override {
    check_name(name);
    in_python(folder_->shown(name), [&] { folder_->fs().attr("rm_file")(folder_->path_of(name)); });
  }

  void sync_directory() override {
    const bool by_itself = in_python(root(), [&] {
      if (!nb::hasattr(folder_->fs(), "sync_directory")) return false;
      folder_->fs().attr("sync_directory")(folder_->path());
      return true;
    });
    if (by_itself) return;
    if (const Abilities can = abilities(); can.directory) can.directory->sync_directory();
  }

  std::unique_ptr<FileLock> lock(std::string_view name) override {
    check_name(name);
    const Abilities can = abilities();
    return can.directory ? can.directory->lock(name) : std::make_unique<NoLock>();
  }

  std::optional<std::uint64_t> free_space() const override {
    const std::optional<Abilities> can = known();
    return can && can->directory ? can->directory->free_space() : std::nullopt;
  }

 private:
  bool has(const char* method) const {
    return in_python(root(), [&] { return nb::hasattr(folder_->fs(), method); });
  }

  // The next three with the GIL held.
  std::unique_ptr<PythonStream> open_if_there(std::string_view name) const {
    folder_->forget();
    try {
      return folder_->open(name, "rb");
    } catch (nb::python_error&) {
      if (folder_->exists(name)) throw;
      return nullptr;
    }
  }

  std::vector<std::string> listed(std::string_view folder) const {
    std::vector<std::string> names;
    try {
      folder_->forget();
      const nb::object path = folder.empty() ? nb::borrow(folder_->path()) : folder_->path_of(folder);
      for (nb::handle each : nb::object(folder_->fs().attr("ls")(path))) {
        std::string name = fs_bytes(each);
        while (name.ends_with('/')) name.pop_back();
        name.erase(0, name.rfind('/') + 1);
        if (is_step(name)) names.push_back(std::move(name));
      }
    } catch (nb::python_error& raised) {
      if (!raised.matches(PyExc_FileNotFoundError) && !raised.matches(PyExc_NotADirectoryError)) throw;
    }
    return names;
  }

  // Where nothing can be listed: those that can be asked for.
  std::vector<std::string> names_of_descriptions() const {
    std::vector<std::string> names;
    if (folder_->exists(".metadata")) names.emplace_back(".metadata");
    for (int rank = 0; rank < kMostRanks; ++rank) {
      std::string name = "__" + std::to_string(rank) + ".metadata";
      if (!folder_->exists(name)) break;
      names.push_back(std::move(name));
    }
    return names;
  }

  std::optional<Abilities> known() const {
    const std::lock_guard lock(mutex_);
    return abilities_;
  }
  // Two that ask for the first time at once both try: nobody waits for the GIL with the mutex in his hand.
  Abilities abilities() const {
    if (const std::optional<Abilities> can = known()) return *can;
    const Abilities found = in_python(root(), [&] { return try_out(*folder_); });
    const std::lock_guard lock(mutex_);
    if (!abilities_) abilities_ = found;
    return *abilities_;
  }

  std::shared_ptr<const PythonFolder> folder_;
  mutable std::mutex mutex_;
  mutable std::optional<Abilities> abilities_;
};

// With the GIL held.
std::shared_ptr<const PythonFolder> folder_at(std::shared_ptr<void> fs, nb::object path, bool create) {
  auto folder = std::make_shared<PythonFolder>();
  folder->fs_object = std::move(fs);
  folder->root = fs_bytes(path);
  if (create) folder->fs().attr("mkdir")(path);
  folder->path_object = owner_of(std::move(path));
  return folder;
}

std::unique_ptr<FileSystem> PythonFileSystem::enter(std::string_view folder, bool create) const {
  check_name(folder);
  return in_python(folder_->shown(folder), [&] {
    if (!create && !folder_->exists(folder))
      throw Error(ErrorCode::kNotFound, "no such folder").in_file(folder_->shown(folder));
    return std::make_unique<PythonFileSystem>(
        folder_at(folder_->fs_object, folder_->path_of(folder), create));
  });
}

}  // namespace

std::shared_ptr<FileSystem> python_file_system(nb::object fs, nb::object path, bool create) {
  return std::make_shared<PythonFileSystem>(folder_at(owner_of(std::move(fs)), std::move(path), create));
}

std::shared_ptr<FileSystem> files_of(nb::object fs, nb::object path, const FileSystemOptions& options) {
  const nb::object local = nb::module_::import_("cairn.torch._places").attr("local_path")(fs, path);
  if (local.is_none()) return python_file_system(std::move(fs), std::move(path), options.create);
  const std::string directory = fs_bytes(local);
  nb::gil_scoped_release release;
  return file_system_of(directory, options);  // a path, or the URL of a bucket
}

}  // namespace cairn::python
