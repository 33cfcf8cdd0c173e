// A data file read as a plan says: some of its blocks whole and checked, the rest exactly.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/source.h"
#include "format/manifest.h"
#include "reading/block_cache.h"

namespace cairn {

// What all reads of one load have done so far.
struct ReadTally {
  std::atomic<std::uint64_t> read = 0;
  std::atomic<std::uint64_t> verified = 0;
  std::atomic<bool> stop = false;  // nobody wants the rest: reads throw Error(kCancelled)
};

struct PlannedFile {
  std::uint32_t id = 0;
  std::vector<std::uint64_t>
      whole_blocks;  // ascending: they are read as a whole, once, for all who want them
  const std::vector<std::uint32_t>* crcs = nullptr;  // of all blocks; null: none to check against
};

// Blocks are kManifestBlock bytes; the cache's are one or several of them. Errors give places in the file.
class PlannedSource final : public ByteSource {
 public:
  PlannedSource(std::shared_ptr<const ByteSource> file, const PlannedFile& plan, BlockCache& cache,
                ReadTally& tally);

  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return file_->name(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override;

 private:
  std::size_t read_exactly(std::uint64_t offset, std::span<std::byte> to) const;
  std::size_t read_run(std::uint64_t offset, std::span<std::byte> to) const;
  std::size_t read_through_cache(std::uint64_t offset, std::span<std::byte> to) const;
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  void check(std::uint64_t block, ByteSpan bytes) const;
  std::uint64_t length_of(std::uint64_t block) const;

  std::shared_ptr<const ByteSource> file_;
  const PlannedFile& plan_;
  BlockCache& cache_;
  ReadTally& tally_;
  std::uint64_t size_;
  bool aligns_;
  std::uint64_t most_at_once_;
};

}  // namespace cairn
