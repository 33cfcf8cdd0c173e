// The stored items of a DCP checkpoint that are being read, open from one read to the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "base/source.h"
#include "format/torch_file.h"

namespace cairn {

// An archive that has been opened, and where it begins in its file.
struct OpenItem {
  std::shared_ptr<const TorchFile> archive;
  std::string file;  // its name, for messages
  std::uint64_t offset_in_file = 0;
  bool transformed = false;
  std::uint64_t held = 0;  // bytes of memory that stay with it
};

// May be used by many threads at once: each item is opened by one of those who want it, and the others wait.
// Keeps the ones used last, at most kMost of them and `capacity` bytes, besides those that somebody is
// reading.
class OpenItems {
 public:
  explicit OpenItems(std::uint64_t capacity) : capacity_(capacity) {}

  std::shared_ptr<const OpenItem> get(std::size_t entry, const std::function<OpenItem()>& open) {
    const std::shared_ptr<Slot> slot = slot_of(entry);
    const std::lock_guard lock(slot->mutex);
    if (slot->item == nullptr) {
      slot->item = std::make_shared<const OpenItem>(open());
      make_room(*slot);
    }
    return slot->item;
  }

 private:
  static constexpr std::size_t kMost = 64;
  struct Slot {
    std::size_t entry = 0;
    std::mutex mutex;
    std::shared_ptr<const OpenItem> item;
    std::uint64_t held = 0;  // as far as make_room() has counted it
  };

  std::shared_ptr<Slot> slot_of(std::size_t entry) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(slots_.begin(), slots_.end(), [&](const auto& s) { return s->entry == entry; });
    if (found != slots_.end()) {
      slots_.splice(slots_.begin(), slots_, found);
    } else {
      slots_.push_front(std::make_shared<Slot>());
      slots_.front()->entry = entry;
    }
    return slots_.front();
  }

  // The item of a slot is there now: those used longest ago go.
  void make_room(Slot& slot) {
    const std::lock_guard lock(mutex_);
    slot.held = slot.item->held;
    held_ += slot.held;
    while (slots_.size() > 1 && (slots_.size() > kMost || held_ > capacity_)) {
      held_ -= slots_.back()->held;
      slots_.pop_back();
    }
  }

  const std::uint64_t capacity_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Slot>> slots_;  // the one used last in front
  std::uint64_t held_ = 0;
};

}  // namespace cairn
