#include "base/large_block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace cairn {
namespace {

constexpr std::size_t kHugePage = 2U << 20;
constexpr std::size_t kPage = 4096;  // or a multiple of it
constexpr int kPopulateWrite = 23;   // MADV_POPULATE_WRITE, which older headers lack

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// A mapping's size; a multiple of the huge page so that neighbours stay aligned.
std::size_t mapped_bytes(std::size_t bytes) { return round_up(bytes, kHugePage); }

// Address space at a huge page's boundary; the parts before and behind it are given back.
std::byte* map_aligned(std::size_t bytes, int protection) {
  void* all =
      mmap(nullptr, bytes + kHugePage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(all);
  const std::size_t before = round_up(address, kHugePage) - address;
  std::byte* const at = static_cast<std::byte*>(all) + before;
  if (before > 0) munmap(all, before);
  if (before < kHugePage) munmap(at + bytes, kHugePage - before);
  return at;
}

void* new_mapping(std::size_t bytes) {
  std::byte* const at = map_aligned(mapped_bytes(bytes), PROT_READ | PROT_WRITE);
  madvise(at, mapped_bytes(bytes), MADV_HUGEPAGE);
  return at;
}

void* grow_mapping(void* block, std::size_t old_bytes, std::size_t bytes) {
  const std::size_t before = mapped_bytes(old_bytes);
  const std::size_t after = mapped_bytes(bytes);
  if (before == after) return block;
  void* grown = mremap(block, before, after, 0);
  if (grown != MAP_FAILED) return grown;
  std::byte* const target = map_aligned(after, PROT_NONE);
  grown = mremap(block, before, after, MREMAP_MAYMOVE | MREMAP_FIXED, target);
  if (grown != MAP_FAILED) return grown;
  munmap(target, after);
  throw std::bad_alloc();
}

}  // namespace

void* resize_block(void* block, std::size_t old_bytes, std::size_t bytes) {
  if (bytes < kLargeBlock && old_bytes < kLargeBlock) {
    void* made = std::realloc(block, std::max<std::size_t>(bytes, 1));
    if (made == nullptr) throw std::bad_alloc();
    return made;
  }
  if (old_bytes >= kLargeBlock && bytes >= old_bytes) return grow_mapping(block, old_bytes, bytes);
  void* made = bytes >= kLargeBlock ? new_mapping(bytes) : resize_block(nullptr, 0, bytes);
  if (block != nullptr) std::memcpy(made, block, std::min(old_bytes, bytes));
  free_block(block, old_bytes);
  return made;
}

void free_block(void* block, std::size_t bytes) noexcept {
  if (bytes < kLargeBlock) {
    std::free(block);
  } else {
    munmap(block, mapped_bytes(bytes));
  }
}

void use_huge_pages(void* at, std::size_t bytes) noexcept {
  const auto first = round_up(reinterpret_cast<std::uintptr_t>(at), kHugePage);
  const auto last = (reinterpret_cast<std::uintptr_t>(at) + bytes) / kHugePage * kHugePage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

void populate(void* at, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(at) / kPage * kPage;
  const auto last = round_up(reinterpret_cast<std::uintptr_t>(at) + bytes, kPage);
  if (madvise(reinterpret_cast<void*>(first), last - first, kPopulateWrite) == 0) return;
  // Older kernels: a write that changes nothing.
  auto* const begin = static_cast<unsigned char*>(at);
  for (std::size_t i = 0; i < bytes; i += kPage) __atomic_fetch_or(begin + i, 0, __ATOMIC_RELAXED);
}

}  // namespace cairn
