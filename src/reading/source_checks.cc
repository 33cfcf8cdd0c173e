#include "reading/source_checks.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/seeded_hash.h"
#include "cairn/error.h"

namespace cairn {

SourceChecks::SourceChecks(std::uint64_t cache_bytes, std::uint64_t item_bytes, std::string spill_directory)
    : item_bytes_(item_bytes),
      spill_directory_(std::move(spill_directory)),
      cache_(kManifestBlock, cache_bytes) {}

void SourceChecks::set_manifest(MapByName<std::string, ManifestFile>&& sums) {
  has_manifest_ = true;
  std::uint32_t id = 0;
  for (auto& [name, file] : sums) {
    Known& known = known_[name];
    known.sums = std::move(file);
    known.plan.id = id++;
    known.plan.crcs = &known.sums.block_crcs;
    for (std::uint64_t block = 0; block < known.sums.block_crcs.size(); ++block)
      known.plan.whole_blocks.push_back(block);
  }
}

std::shared_ptr<const ByteSource> SourceChecks::checked(const std::string& name,
                                                        std::shared_ptr<const ByteSource> file) {
  if (!has_manifest_) return file;
  const auto known = known_.find(name);
  if (known == known_.end())
    throw Error(ErrorCode::kCorrupt, "the manifest says nothing about the file").in_file(file->name());
  if (file->size() != known->second.sums.size) {
    throw Error(ErrorCode::kCorrupt, fmt::format("the file has {} bytes, the manifest says {}", file->size(),
                                                 known->second.sums.size))
        .in_file(file->name());
  }
  return std::make_shared<PlannedSource>(std::move(file), known->second.plan, cache_, tally_);
}

void SourceChecks::note(const Record& record, std::uint64_t bytes, std::uint32_t crc, const ReadRun& run) {
  if (!run.unbroken) return;
  const std::lock_guard lock(mutex_);
  JoinedSum& sum = records_[record];
  sum.add(run.begin, run.end, run.crc);
  const std::optional<std::uint32_t> whole = sum.whole(bytes);
  if (!whole) return;
  records_.erase(record);
  if (*whole != crc) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("the elements' CRC-32 is {:08x}, the archive says {:08x}", *whole, crc))
        .in_file(record.file)
        .at(record.offset);
  }
  tally_.verified += bytes;
}

void read_checked(StoredElements elements, const Selection& selection, const TensorView& to,
                  SourceChecks* checks, std::uint64_t archive) {
  if (checks == nullptr) return read_box(elements, selection, to);
  const std::optional<std::uint32_t> crc = elements.crc;
  elements.crc.reset();
  // Blocks that are compared with the manifest need no second checksum.
  if (!crc || checks->has_manifest()) return read_box(elements, selection, to);
  ReadRun run;
  read_box(elements, selection, to, &run);
  checks->note({elements.source->name(), archive, elements.storage_offset}, elements.storage_bytes, *crc,
               run);
}

}  // namespace cairn
