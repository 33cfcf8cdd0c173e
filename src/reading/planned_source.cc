#include "reading/planned_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/trial.h"
#include "cairn/error.h"
#include "cairn/storage.h"

namespace cairn {
namespace {

// A disk wants large reads. What comes from memory is checked while it is in the processor's cache.
constexpr std::uint64_t kMostFromDisk = 4 * kManifestBlock;
constexpr std::uint64_t kMostFromFar = 64 * kManifestBlock;

bool is_aligned(const void* address, std::uint64_t offset) {
  return (reinterpret_cast<std::uintptr_t>(address) | offset) % kDirectAlignment == 0;
}

}  // namespace

PlannedSource::PlannedSource(std::shared_ptr<const ByteSource> file, const PlannedFile& plan,
                             BlockCache& cache, ReadTally& tally)
    : file_(std::move(file)),
      plan_(plan),
      cache_(cache),
      tally_(tally),
      size_(file_->size()),
      aligns_(file_->prefers_alignment()),
      most_at_once_(file_->is_far() ? kMostFromFar
                    : aligns_       ? kMostFromDisk
                                    : kManifestBlock) {}

std::uint64_t PlannedSource::length_of(std::uint64_t block) const {
  return std::min(kManifestBlock, size_ - block * kManifestBlock);
}

void PlannedSource::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("{} bytes wanted of a file of {}: it is cut off, or the metadata is not its own",
                            to.size(), size_))
        .in_file(name())
        .at(offset);
  }
  const std::vector<std::uint64_t>& whole = plan_.whole_blocks;
  while (!to.empty()) {
    const std::uint64_t block = offset / kManifestBlock;
    std::size_t done = 0;
    if (!std::binary_search(whole.begin(), whole.end(), block)) {
      done = read_exactly(offset, to);
    } else if (offset % kManifestBlock == 0 && to.size() >= length_of(block)) {
      done = read_run(offset, to);
    } else {
      done = read_through_cache(offset, to);
    }
    offset += done;
    to = to.subspan(done);
  }
}

// Up to the next block that is read whole.
std::size_t PlannedSource::read_exactly(std::uint64_t offset, std::span<std::byte> to) const {
  const auto next =
      std::lower_bound(plan_.whole_blocks.begin(), plan_.whole_blocks.end(), offset / kManifestBlock);
  const std::uint64_t end = next == plan_.whole_blocks.end() ? size_ : *next * kManifestBlock;
  const auto count =
      static_cast<std::size_t>(std::min<std::uint64_t>({to.size(), end - offset, most_at_once_}));
  read(offset, to.first(count));
  return count;
}

// Whole blocks that follow each other, straight to where they are wanted.
std::size_t PlannedSource::read_run(std::uint64_t offset, std::span<std::byte> to) const {
  auto next = std::lower_bound(plan_.whole_blocks.begin(), plan_.whole_blocks.end(), offset / kManifestBlock);
  const std::uint64_t first = *next;
  // What a disk cannot put there directly goes through a block of memory where it can.
  if (aligns_ && !is_aligned(to.data(), offset)) {
    const std::shared_ptr<BlockCache::Buffer> bounce = cache_.take_buffer();
    const std::span<std::byte> bytes = bounce->bytes().first(length_of(first));
    read(offset, bytes);
    check(first, bytes);
    std::memcpy(to.data(), bytes.data(), bytes.size());
    return bytes.size();
  }
  std::uint64_t blocks = 0, count = 0;
  for (; next != plan_.whole_blocks.end() && *next == first + blocks; ++next, ++blocks) {
    const std::uint64_t more = length_of(*next);
    if (count + more > to.size() || count + more > most_at_once_) break;
    count += more;
  }
  read(offset, to.first(count));
  for (std::uint64_t i = 0; i < blocks; ++i)
    check(first + i, to.subspan(i * kManifestBlock, length_of(first + i)));
  return count;
}

// With those around it that follow each other and are read whole, as far as a block of the cache has room.
std::size_t PlannedSource::read_through_cache(std::uint64_t offset, std::span<std::byte> to) const {
  const std::uint64_t room = cache_.block_bytes() / kManifestBlock;
  const std::uint64_t block = offset / kManifestBlock, lowest = block / room * room;
  const std::vector<std::uint64_t>& whole = plan_.whole_blocks;
  const auto wanted = std::lower_bound(whole.begin(), whole.end(), block);
  auto begin = wanted, end = wanted + 1;
  while (begin != whole.begin() && *(begin - 1) + 1 == *begin && *begin > lowest) --begin;
  while (end != whole.end() && *end == *(end - 1) + 1 && *end < lowest + room) ++end;
  const std::uint64_t from = *begin * kManifestBlock;
  const std::uint64_t length = (*(end - 1) - *begin) * kManifestBlock + length_of(*(end - 1));
  const auto loaded = cache_.get({plan_.id, *begin}, [&](std::span<std::byte> memory) {
    read(from, memory.first(length));
    for (auto each = begin; each != end; ++each)
      check(*each, memory.subspan((*each - *begin) * kManifestBlock, length_of(*each)));
  });
  const std::size_t count = std::min<std::uint64_t>(to.size(), from + length - offset);
  std::memcpy(to.data(), loaded->bytes().data() + (offset - from), count);
  return count;
}

void PlannedSource::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (tally_.stop) throw Error(ErrorCode::kCancelled, "the load has failed elsewhere");
  file_->read_at(offset, to);
  tally_.read += to.size();
}

void PlannedSource::check(std::uint64_t block, ByteSpan bytes) const {
  if (plan_.crcs == nullptr) return;
  const std::uint32_t expected = plan_.crcs->at(block);
  const std::uint32_t found = crc32(bytes);
  if (found != expected) {
    throw Error(
        ErrorCode::kCorrupt,
        fmt::format("the {} bytes here have the CRC-32 {:08x}, the manifest says {:08x}: the file has "
                    "changed since it was written",
                    bytes.size(), found, expected))
        .in_file(name())
        .at(block * kManifestBlock);
  }
  tally_.verified += bytes.size();
}

}  // namespace cairn
