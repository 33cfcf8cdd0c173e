#include "sim_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cairn/error.h"
#include "checkpoint/dcp_names.h"
#include "testing/forwarding.h"
#include "virtual_threads.h"

namespace cairn::sim {

// A call of a process: takes time, and is the process's last one if it is so fated.
template <class Work>
auto call(Process& process, Time most_delay, std::string_view what, std::string_view name, Work&& work) {
  if (!process.enter(what, name)) throw Crashed();
  const auto delay = Time(process.world().random.below(static_cast<std::uint64_t>(most_delay.count()) + 1));
  process.stall(delay);
  if (process.is_dead()) throw Crashed();
  if constexpr (std::is_void_v<decltype(work())>) {
    work();
    if (!process.leave()) throw Crashed();
  } else {
    auto result = work();
    if (!process.leave()) throw Crashed();
    return result;
  }
}

class ProcessWriter final : public FileWriter {
 public:
  ProcessWriter(Storage& storage, Process& process, std::unique_ptr<FileWriter> inner, std::string name)
      : storage_(storage), process_(process), inner_(std::move(inner)), name_(std::move(name)) {}
  // A process that dies leaves what it was writing.
  ~ProcessWriter() override {
    if (!process_.is_dead() || committed_) return;
    try {
      // As the library would call it, by a number of this seed.
      const auto digits = [] { return draw() & 0xffffffffU; };
      const std::string name = fmt::format("{}.{:08x}{:08x}.cairn-partial", name_, digits(), digits());
      storage_.files_->create(name)->commit();
    } catch (const Error& e) {
      storage_.world_.break_promise(e.what());
    }
  }

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    call(process_, Time(0), "write", name_, [&] { inner_->write_at(offset, bytes); });
  }
  bool read_back(std::uint64_t offset, std::span<std::byte> to) override {
    return inner_->read_back(offset, to);
  }
  void commit() override {
    call(process_, storage_.options_.most_delay, "commit", name_, [&] {
      inner_->commit();
      committed_ = true;
      storage_.on_commit(process_, name_);
    });
  }

 private:
  Storage& storage_;
  Process& process_;
  std::unique_ptr<FileWriter> inner_;
  const std::string name_;
  bool committed_ = false;
};

class ProcessLock final : public FileLock {
 public:
  ProcessLock(Storage& storage, Process& process, std::string_view name)
      : storage_(storage), process_(process), name_(name) {
    if (!storage.options_.has_locks) return;
    Process*& holder = storage.locks_[name_];
    if (holder != nullptr && !holder->is_dead())
      throw Error(ErrorCode::kConflict, "somebody else holds this lock").in_file(name_);
    holder = &process;
  }
  ~ProcessLock() override {
    if (storage_.options_.has_locks && storage_.locks_[name_] == &process_) storage_.locks_[name_] = nullptr;
  }
  bool is_exclusive() const override { return storage_.options_.has_locks; }

 private:
  Storage& storage_;
  Process& process_;
  const std::string name_;
};

class ProcessFiles final : public ForwardingFileSystem {
  template <class Work> auto timed(std::string_view what, std::string_view name, Work&& work) const {
    return call(process_, storage_.options_.most_delay, what, name, std::forward<Work>(work));
  }

 public:
  ProcessFiles(Storage& storage, Process& process)
      : ForwardingFileSystem(*storage.files_), storage_(storage), process_(process) {}

  // What a directory can do: the way that most saves go.
  Capabilities capabilities() const override {
    Capabilities can = storage_.files_->capabilities();
    can.replace_if_unchanged = false;
    return can;
  }
  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    storage_.require_may_publish(process_, name);
    auto inner = timed("create", name, [&] { return storage_.files_->create(name, options); });
    return std::make_unique<ProcessWriter>(storage_, process_, std::move(inner), std::string(name));
  }
  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    return timed("open", name, [&] { return storage_.files_->open(name); });
  }
  std::optional<FileEntry> stat(std::string_view name) const override {
    return timed("stat", name, [&] { return storage_.files_->stat(name); });
  }
  std::vector<FileEntry> entries(std::string_view folder) const override {
    return timed("list", folder, [&] { return storage_.files_->entries(folder); });
  }
  void rename(std::string_view from, std::string_view to) override {
    storage_.require_may_publish(process_, to);
    timed("rename", from, [&] {
      storage_.require_not_live(process_, from, "renamed");
      storage_.files_->rename(from, to);
      storage_.on_commit(process_, to);
    });
  }
  void remove(std::string_view name) override {
    timed("remove", name, [&] {
      storage_.require_not_live(process_, name, "removed");
      storage_.files_->remove(name);
    });
  }
  void sync_directory() override {
    timed("sync", "", [] {});
  }
  std::unique_ptr<FileLock> lock(std::string_view name) override {
    return timed("lock", name, [&] {
      return std::unique_ptr<FileLock>(std::make_unique<ProcessLock>(storage_, process_, name));
    });
  }

 private:
  Storage& storage_;
  Process& process_;
};

Storage::Storage(World& world, const StorageOptions& options)
    : world_(world), options_(options), files_(memory_file_system()) {}

std::unique_ptr<FileSystem> Storage::seen_by(Process& process) {
  return std::make_unique<ProcessFiles>(*this, process);
}

bool Storage::was_published(int version) const {
  return std::find(published_.begin(), published_.end(), version) != published_.end();
}

void Storage::require_may_publish(Process& process, std::string_view name) {
  const Attempt& attempt = process.attempt;
  if (process.is_dead()) return;
  if (!attempt.may_write)
    world_.break_promise(fmt::format("'{}' is written although the ranks disagree", name));
  if (name != kMetadataName) return;
  if (process.local_now() > attempt.deadline)
    world_.break_promise(fmt::format("version {} is published after its deadline", attempt.version));
  const auto lock = locks_.find(kLockName);
  if (options_.has_locks && (lock == locks_.end() || lock->second != &process))
    world_.break_promise(fmt::format("version {} is published without the lock", attempt.version));
}

void Storage::require_not_live(Process& process, std::string_view name, std::string_view what) {
  if (!live_.contains(std::string(name))) return;
  world_.break_promise(
      fmt::format("process {}: '{}' of the complete checkpoint is {}", process.id(), name, what));
}

void Storage::on_commit(Process& process, std::string_view name) {
  if (name != kMetadataName) return require_not_live(process, name, "replaced");
  published_.push_back(process.attempt.version);
  world_.note(&process, "PUBLISHED", "", static_cast<std::uint64_t>(process.attempt.version));
  news_ = true;
  live_.clear();
  // So that it is looked at before anything else happens.
  world_.fibers.sleep_until(world_.fibers.now());
}

}  // namespace cairn::sim
