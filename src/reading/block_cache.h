// Blocks of files in memory: each is read once for all threads that want a part of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "cairn/error.h"
#include "cairn/tensor.h"

namespace cairn {

// May be used by many threads at once. Keeps up to `capacity` bytes of blocks, those used last, besides the
// ones that somebody is looking at.
class BlockCache {
 public:
  BlockCache(std::uint64_t block_bytes, std::uint64_t capacity);
  std::uint64_t block_bytes() const { return block_bytes_; }

  // Aligned memory of a block's size, given back when it is destroyed.
  class Buffer {
   public:
    Buffer(BlockCache& cache, Tensor memory) : cache_(&cache), memory_(std::move(memory)) {}
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { cache_->give_back(std::move(memory_)); }
    std::span<std::byte> bytes() { return memory_.bytes(); }

   private:
    BlockCache* cache_;
    Tensor memory_;
  };
  std::shared_ptr<Buffer> take_buffer();

  struct Key {
    std::uint32_t file = 0;
    std::uint64_t block = 0;
    bool operator==(const Key&) const = default;
  };
  // Block `key`, filled by `load` in one of the threads that want it while the others wait. When that throws,
  // each of them gets the Error as its own, to add to as it likes, and the next one to ask tries again.
  using Load = std::function<void(std::span<std::byte>)>;
  std::shared_ptr<Buffer> get(const Key& key, const Load& load);

 private:
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::uint64_t>()((std::uint64_t{key.file} << 40) ^ key.block);
    }
  };
  struct Entry {
    Key key;
    std::shared_ptr<Buffer> buffer = nullptr;  // while it is being filled
    bool failed = false;
    std::optional<Error> failure = std::nullopt;  // also where there was no memory for it
  };
  using Entries = std::list<std::shared_ptr<Entry>>;  // the one used last in front
  std::shared_ptr<Buffer> fill(const std::shared_ptr<Entry>& entry, const Load& load);
  std::shared_ptr<Entry> drop_oldest();
  void forget(const Key& key);
  void give_back(Tensor memory);

  const std::uint64_t block_bytes_;
  const std::size_t most_;  // blocks
  std::mutex spare_mutex_;
  std::vector<Tensor> spare_;  // outlives the entries, which give their memory back to it
  std::mutex mutex_;
  std::condition_variable filled_;
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, KeyHash> by_key_;
};

}  // namespace cairn
