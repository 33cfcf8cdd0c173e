// Memory for arrays that grow to many megabytes.
//
// Small blocks are malloc's. From kLargeBlock bytes on a block is a mapping of its own: it grows by moving
// page tables instead of bytes, and it lies on huge pages where the system offers them, so that filling it
// costs a page fault per 2 MiB instead of one per 4 KiB.
#pragma once

#include <cstddef>

namespace cairn {

inline constexpr std::size_t kLargeBlock = 1U << 20;

// A block of `bytes` that begins with the first `old_bytes` of `block`, which is gone afterwards (null and
// 0 for a new one). Throws std::bad_alloc and leaves `block` as it was when there is no memory.
void* resize_block(void* block, std::size_t old_bytes, std::size_t bytes);
void free_block(void* block, std::size_t bytes) noexcept;

// Asks for huge pages under memory that came from elsewhere and will be touched from end to end.
void use_huge_pages(void* at, std::size_t bytes) noexcept;

// Brings the pages of writable memory in now; what they hold stays as it is, also while others write there.
void populate(void* at, std::size_t bytes) noexcept;

}  // namespace cairn
