#include "reading/block_cache.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/current_error.h"

namespace cairn {
namespace {

constexpr std::size_t kMostSpare = 8;

}  // namespace

BlockCache::BlockCache(std::uint64_t block_bytes, std::uint64_t capacity)
    : block_bytes_(block_bytes),
      most_(static_cast<std::size_t>(std::max<std::uint64_t>(1, capacity / block_bytes))) {
  spare_.reserve(kMostSpare);  // what is given back must not need memory
}

std::shared_ptr<BlockCache::Buffer> BlockCache::take_buffer() {
  Tensor memory;
  {
    const std::lock_guard lock(spare_mutex_);
    if (!spare_.empty()) {
      memory = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (memory.owner() == nullptr)
    memory = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(block_bytes_)});
  return std::make_shared<Buffer>(*this, std::move(memory));
}

void BlockCache::give_back(Tensor memory) {
  const std::lock_guard lock(spare_mutex_);
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(memory));
}

std::shared_ptr<BlockCache::Buffer> BlockCache::get(const Key& key, const Load& load) {
  std::shared_ptr<Entry> dropped;  // its memory goes after the lock
  std::unique_lock lock(mutex_);
  const auto known = by_key_.find(key);
  if (known != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, known->second);
    const std::shared_ptr<Entry> entry = entries_.front();
    filled_.wait(lock, [&] { return entry->buffer != nullptr || entry->failed; });
    if (entry->failure) throw Error(*entry->failure);
    if (entry->failed) throw std::bad_alloc();
    return entry->buffer;
  }
  if (entries_.size() >= most_) dropped = drop_oldest();
  const auto entry = std::make_shared<Entry>(Entry{key});
  entries_.push_front(entry);
  by_key_[key] = entries_.begin();
  lock.unlock();
  return fill(entry, load);
}

std::shared_ptr<BlockCache::Buffer> BlockCache::fill(const std::shared_ptr<Entry>& entry, const Load& load) {
  try {
    std::shared_ptr<Buffer> buffer = take_buffer();
    load(buffer->bytes());
    const std::lock_guard lock(mutex_);
    entry->buffer = buffer;
    filled_.notify_all();
    return buffer;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    entry->failed = true;
    forget(entry->key);
    filled_.notify_all();
    entry->failure = current_error();
    throw;
  }
}

// One that is still being filled stays: those who wait for it would read it a second time.
std::shared_ptr<BlockCache::Entry> BlockCache::drop_oldest() {
  const auto oldest = std::find_if(entries_.rbegin(), entries_.rend(),
                                   [](const auto& entry) { return entry->buffer != nullptr; });
  if (oldest == entries_.rend()) return nullptr;
  std::shared_ptr<Entry> entry = *oldest;
  forget(entry->key);
  return entry;
}

void BlockCache::forget(const Key& key) {
  const auto known = by_key_.find(key);
  if (known == by_key_.end()) return;
  entries_.erase(known->second);
  by_key_.erase(known);
}

}  // namespace cairn
