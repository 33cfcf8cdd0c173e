#include "testing/faulty.h"

#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "cairn/error.h"
#include "testing/forwarding.h"

namespace cairn {
namespace {

using Call = Faults::Call;

// As posix_file_system() says it.
Error injected(const Fault& fault, const Call& call) {
  return Error(fault.os_error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "injected fault")
      .while_doing(name_of(call.call))
      .in_file(call.name)
      .with_errno(fault.os_error);
}

// Does `work` as the faults will have it.
template <class Work> auto guarded(Faults& faults, const Call& call, Work&& work) {
  const std::optional<Fault> fault = faults.meet(call);
  if (!fault) return work();
  if (fault->delay.count() > 0) std::this_thread::sleep_for(fault->delay);
  if (fault->only_delay) return work();
  if (fault->after) work();
  throw injected(*fault, call);
}

// The same for calls that move bytes, which may fail halfway.
template <class Work> void guarded_transfer(Faults& faults, const Call& call, Work&& work) {
  const std::uint64_t size = call.size;
  const std::optional<Fault> fault = faults.meet(call);
  if (fault && fault->delay.count() > 0) std::this_thread::sleep_for(fault->delay);
  if (!fault || fault->only_delay) return work(size);
  if (fault->after) work(size);
  if (fault->halfway) work(size / 2);
  throw injected(*fault, call).at(call.offset);
}

class FaultySource final : public ByteSource {
 public:
  FaultySource(std::shared_ptr<const ByteSource> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}
  std::uint64_t size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    guarded_transfer(*faults_, {FileCall::kRead, name(), offset, to.size()},
                     [&](std::uint64_t size) { inner_->read_at(offset, to.first(size)); });
  }

 private:
  std::shared_ptr<const ByteSource> inner_;
  std::shared_ptr<Faults> faults_;
};

class FaultyWriter final : public FileWriter {
 public:
  FaultyWriter(std::unique_ptr<FileWriter> inner, std::string name, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), name_(std::move(name)), faults_(std::move(faults)) {}
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    guarded_transfer(*faults_, {FileCall::kWrite, name_, offset, bytes.size()},
                     [&](std::uint64_t size) { inner_->write_at(offset, bytes.first(size)); });
  }
  bool read_back(std::uint64_t offset, std::span<std::byte> to) override {
    bool done = false;
    guarded_transfer(*faults_, {FileCall::kRead, name_, offset, to.size()},
                     [&](std::uint64_t size) { done = inner_->read_back(offset, to.first(size)); });
    return done;
  }
  void commit() override {
    guarded(*faults_, {FileCall::kCommit, name_}, [&] { inner_->commit(); });
  }

 private:
  std::unique_ptr<FileWriter> inner_;
  std::string name_;
  std::shared_ptr<Faults> faults_;
};

class FaultyFileSystem final : public ForwardingFileSystem {
 public:
  FaultyFileSystem(std::unique_ptr<FileSystem> inner, std::shared_ptr<Faults> faults)
      : ForwardingFileSystem(*inner), owned_(std::move(inner)), faults_(std::move(faults)) {}

  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    auto writer = guarded(*faults_, {FileCall::kCreate, std::string(name), 0, options.size},
                          [&] { return inner_.create(name, options); });
    return std::make_unique<FaultyWriter>(std::move(writer), std::string(name), faults_);
  }
  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    auto source = guarded(*faults_, {FileCall::kOpen, std::string(name)}, [&] { return inner_.open(name); });
    return std::make_shared<FaultySource>(std::move(source), faults_);
  }
  std::optional<FileEntry> stat(std::string_view name) const override {
    return guarded(*faults_, {FileCall::kStat, std::string(name)}, [&] { return inner_.stat(name); });
  }
  std::vector<FileEntry> entries(std::string_view folder) const override {
    return guarded(*faults_, {FileCall::kList, root()}, [&] { return inner_.entries(folder); });
  }
  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override {
    auto entered = guarded(*faults_, {FileCall::kOpen, std::string(folder)},
                           [&] { return inner_.enter(folder, create); });
    return std::make_unique<FaultyFileSystem>(std::move(entered), faults_);
  }
  std::optional<std::string> version_of(std::string_view name) const override {
    return guarded(*faults_, {FileCall::kStat, std::string(name)}, [&] { return inner_.version_of(name); });
  }
  void rename(std::string_view from, std::string_view to) override {
    guarded(*faults_, {FileCall::kRename, std::string(from)}, [&] { inner_.rename(from, to); });
  }
  void remove(std::string_view name) override {
    guarded(*faults_, {FileCall::kRemove, std::string(name)}, [&] { inner_.remove(name); });
  }
  void sync_directory() override {
    guarded(*faults_, {FileCall::kSync, root()}, [&] { inner_.sync_directory(); });
  }
  std::unique_ptr<FileLock> lock(std::string_view name) override {
    return guarded(*faults_, {FileCall::kLock, std::string(name)}, [&] { return inner_.lock(name); });
  }
  std::optional<std::uint64_t> free_space() const override {
    const std::optional<std::uint64_t> said = faults_->room();
    return said ? said : inner_.free_space();
  }

 private:
  std::unique_ptr<FileSystem> owned_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace

std::string_view name_of(FileCall call) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "create", "write", "commit", "open", "read", "stat", "list", "rename", "remove", "sync", "lock"};
  return kNames[static_cast<std::size_t>(call)];
}

void Faults::fail(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  faults_.emplace_back(fault, 0);
}

void Faults::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  trace_.clear();
  fired_ = 0;
}

void Faults::set_room(std::optional<std::uint64_t> bytes) {
  const std::lock_guard lock(mutex_);
  room_ = bytes;
}

std::optional<std::uint64_t> Faults::room() const {
  const std::lock_guard lock(mutex_);
  return room_;
}

std::vector<Faults::Call> Faults::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

std::uint64_t Faults::fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

std::optional<Fault> Faults::meet(const Call& call) {
  const std::lock_guard lock(mutex_);
  trace_.push_back(call);
  std::optional<Fault> met;
  for (auto& [fault, counted] : faults_) {
    if (fault.call && *fault.call != call.call) continue;
    ++counted;
    if (!met && (counted == fault.nth || (fault.for_ever && counted > fault.nth))) met = fault;
  }
  if (met) ++fired_;
  return met;
}

std::unique_ptr<FileSystem> faulty_file_system(std::unique_ptr<FileSystem> inner,
                                               std::shared_ptr<Faults> faults) {
  return std::make_unique<FaultyFileSystem>(std::move(inner), std::move(faults));
}

}  // namespace cairn
