// Storage that all processes of a world share, and what must be true of it at every moment.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/storage.h"
#include "sim_world.h"

namespace cairn::sim {

struct StorageOptions {
  bool has_locks = true;
  Time most_delay = std::chrono::microseconds(200);  // of a call
};

class Storage {
 public:
  Storage(World& world, const StorageOptions& options);

  // As one process sees it. What it leaves when it dies stays; its locks are given back.
  std::unique_ptr<FileSystem> seen_by(Process& process);
  const std::shared_ptr<FileSystem>& files() const { return files_; }
  const StorageOptions& options() const { return options_; }

  // The versions that were published, in order.
  const std::vector<int>& published() const { return published_; }
  bool was_published(int version) const;

  // True once after something was published: the caller looks whether it is whole, and says what it is.
  bool take_news() { return std::exchange(news_, false); }
  void set_live_files(std::set<std::string> names) { live_ = std::move(names); }

 private:
  friend class ProcessFiles;
  friend class ProcessWriter;
  friend class ProcessLock;

  void require_may_publish(Process& process, std::string_view name);
  void require_not_live(Process& process, std::string_view name, std::string_view what);
  void on_commit(Process& process, std::string_view name);

  World& world_;
  const StorageOptions options_;
  std::shared_ptr<FileSystem> files_;
  std::map<std::string, Process*, std::less<>> locks_;
  std::vector<int> published_;
  std::set<std::string> live_;  // files of the checkpoint that is there
  bool news_ = false;
};

}  // namespace cairn::sim
