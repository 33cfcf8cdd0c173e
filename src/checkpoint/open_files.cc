#include "checkpoint/open_files.h"

#include <algorithm>
#include <utility>

#include "format/safetensors.h"

namespace cairn {

OpenFiles::OpenFiles(std::shared_ptr<const FileSystem> root, const Limits& limits, std::size_t capacity,
                     Wrap wrap)
    : root_(std::move(root)), limits_(limits), capacity_(capacity), wrap_(std::move(wrap)) {}

std::shared_ptr<const ByteSource> OpenFiles::get(const std::string& name) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(name);
    if (found != kept_.end()) {
      found->second.last_use = ++uses_;
      return found->second.file;
    }
  }
  // Outside the lock: a slow file system holds up only those who want this file. Two threads may open it
  // at the same time; the second one's is used from then on.
  check_relative_path(name, limits_);
  std::shared_ptr<const ByteSource> file = root_->open(name);
  if (wrap_) file = wrap_(name, std::move(file));
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= capacity_) drop_oldest();
  kept_[name] = {file, ++uses_};
  return file;
}

void OpenFiles::drop_oldest() const {
  const auto oldest = std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  if (oldest != kept_.end()) kept_.erase(oldest);
}

}  // namespace cairn
