// An allocator that fails when told to. For one program: it takes the place of malloc, and so of operator
// new.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace cairn {

// All of it is used by many threads at once.
struct FailingMemory {
  std::atomic<bool> armed = false;
  std::atomic<bool> for_ever = false;
  std::atomic<std::uint64_t> nth = 0;
  std::atomic<std::uint64_t> calls = 0;   // since arm()
  std::atomic<std::uint64_t> failed = 0;  // of those
  std::atomic<std::int64_t> live = 0;     // blocks that nobody has freed

  void arm(std::uint64_t which, bool and_all_that_follow) {
    nth = which;
    for_ever = and_all_that_follow;
    calls = failed = 0;
    armed = true;
  }
  void disarm() { armed = false; }

  bool refuses() {
    if (!armed) return false;
    const std::uint64_t call = ++calls;
    if (call != nth && !(for_ever && call > nth)) return false;
    ++failed;
    errno = ENOMEM;
    return true;
  }
  template <class Allocate> void* allocate(const Allocate& how) {
    if (refuses()) return nullptr;
    void* block = how();
    if (block != nullptr) ++live;
    return block;
  }
};

inline constinit FailingMemory failing_memory;

}  // namespace cairn

extern "C" {

void* __libc_malloc(std::size_t) noexcept;
void* __libc_calloc(std::size_t, std::size_t) noexcept;
void* __libc_realloc(void*, std::size_t) noexcept;
void* __libc_memalign(std::size_t, std::size_t) noexcept;
void __libc_free(void*) noexcept;

void* malloc(std::size_t size) noexcept {
  return cairn::failing_memory.allocate([&] { return __libc_malloc(size); });
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  return cairn::failing_memory.allocate([&] { return __libc_calloc(count, size); });
}
void* realloc(void* block, std::size_t size) noexcept {
  if (block == nullptr) return malloc(size);
  return cairn::failing_memory.refuses() ? nullptr : __libc_realloc(block, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return cairn::failing_memory.allocate([&] { return __libc_memalign(alignment, size); });
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept { return memalign(alignment, size); }
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) noexcept {
  if (block != nullptr) --cairn::failing_memory.live;
  __libc_free(block);
}
}
