// A FileSystem that does what another one does: for doubles that change a few of its answers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/storage.h"

namespace cairn {

class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(FileSystem& inner) : inner_(inner) {}

  Capabilities capabilities() const override { return inner_.capabilities(); }
  const std::string& root() const override { return inner_.root(); }
  std::string identity() const override { return inner_.identity(); }
  std::unique_ptr<FileWriter> create(std::string_view name, const CreateOptions& options) override {
    return inner_.create(name, options);
  }
  std::shared_ptr<const ByteSource> open(std::string_view name) const override { return inner_.open(name); }
  std::optional<FileEntry> stat(std::string_view name) const override { return inner_.stat(name); }
  std::vector<FileEntry> entries(std::string_view folder) const override { return inner_.entries(folder); }
  std::unique_ptr<FileSystem> enter(std::string_view folder, bool create) const override {
    return inner_.enter(folder, create);
  }
  void remove_made_folders() noexcept override { inner_.remove_made_folders(); }
  std::optional<std::string> version_of(std::string_view name) const override {
    return inner_.version_of(name);
  }
  std::optional<std::chrono::system_clock::time_point> modified(std::string_view name) const override {
    return inner_.modified(name);
  }
  void rename(std::string_view from, std::string_view to) override { inner_.rename(from, to); }
  void remove(std::string_view name) override { inner_.remove(name); }
  void sync_directory() override { inner_.sync_directory(); }
  std::unique_ptr<FileLock> lock(std::string_view name) override { return inner_.lock(name); }
  std::optional<std::uint64_t> free_space() const override { return inner_.free_space(); }

 protected:
  FileSystem& inner_;
};

}  // namespace cairn
