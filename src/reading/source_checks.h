// Checks what is read of a checkpoint against its own checksums, for those who read all of it in parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/seeded_hash.h"
#include "base/source.h"
#include "format/manifest.h"
#include "reading/block_cache.h"
#include "reading/joined_sum.h"
#include "reading/planned_source.h"
#include "reading/read_box.h"

namespace cairn {

// Two kinds of checksums: a manifest's, of the blocks of whole files, and those that an archive has of its
// records. May be used by many threads at once.
class SourceChecks {
 public:
  // `cache_bytes`: of blocks that several reads share. Items that a transform makes larger than `item_bytes`
  // go to a file in `spill_directory`.
  SourceChecks(std::uint64_t cache_bytes, std::uint64_t item_bytes, std::string spill_directory);

  std::uint64_t item_bytes() const { return item_bytes_; }
  const std::string& spill_directory() const { return spill_directory_; }

  // From here on files have the checksums of a manifest. Call before the first file is opened.
  void set_manifest(MapByName<std::string, ManifestFile>&& sums);
  bool has_manifest() const { return has_manifest_; }
  // The file with each of its blocks checked when it is read; as it is without a manifest. Error kCorrupt
  // for a file that the manifest does not know, or knows with another size.
  std::shared_ptr<const ByteSource> checked(const std::string& name, std::shared_ptr<const ByteSource> file);

  // A record of an archive: where the archive begins in its file, and where in the archive the record is.
  struct Record {
    std::string file;
    std::uint64_t archive = 0;
    std::uint64_t offset = 0;
    auto operator<=>(const Record&) const = default;
  };
  // `run` of a record of `bytes` bytes has been read. When all of it has passed, and its sum is not `crc`:
  // Error kCorrupt, with the place in the archive.
  void note(const Record& record, std::uint64_t bytes, std::uint32_t crc, const ReadRun& run);

  // Bytes that were found equal to what was written.
  std::uint64_t verified() const { return tally_.verified; }

 private:
  struct Known {
    ManifestFile sums;
    PlannedFile plan;
  };

  std::uint64_t item_bytes_;
  std::string spill_directory_;
  bool has_manifest_ = false;
  MapByName<std::string, Known> known_;
  BlockCache cache_;
  ReadTally tally_;
  std::mutex mutex_;
  std::map<Record, JoinedSum> records_;  // of which a part has passed
};

// Reads a box and, with `checks`, notes what passed; without, a box that is the whole storage is checked
// alone. `archive` is where the elements' source begins in its file.
void read_checked(StoredElements elements, const Selection& selection, const TensorView& to,
                  SourceChecks* checks, std::uint64_t archive = 0);

}  // namespace cairn
