// The parts of verify: what is found is gathered here, and each kind of check has a file of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"
#include "base/pod_vector.h"
#include "base/seeded_hash.h"
#include "cairn/error.h"
#include "cairn/verify.h"
#include "format/manifest.h"

namespace cairn {

// What verify has found so far. May be used by many threads at once.
class Findings {
 public:
  explicit Findings(const VerifyOptions& options) : options_(options) {}

  const VerifyOptions& options() const { return options_; }
  int threads() const;  // as many as may run at once

  void add(Problem problem);
  // An Error met while looking at `file`.
  void add_unreadable(const std::string& file, const Error& e, std::string tensor = "",
                      ProblemKind kind = ProblemKind::kUnreadable);
  void add_checked(std::uint64_t bytes);
  void add_unchecked(std::string_view why, std::uint64_t bytes);

  void expect(std::uint64_t bytes) { total_ += bytes; }  // that will be passed
  void pass(std::uint64_t bytes);                        // read, or given up: tells the caller how far it is

  // `counts` has everything that is no finding.
  VerifyReport finish(VerifyReport counts);

 private:
  const VerifyOptions& options_;
  std::mutex mutex_;
  std::vector<Problem> problems_;
  std::uint64_t left_out_ = 0;
  std::vector<Unchecked> unchecked_;
  std::uint64_t checked_ = 0;
  std::uint64_t total_ = 0;
  std::mutex progress_mutex_;
  std::uint64_t done_ = 0;
};

// The stored items of a description, those of one file side by side and in order.
class ItemsByFile {
 public:
  explicit ItemsByFile(const StorageData& storage);
  std::span<const std::uint32_t> of(std::string_view file) const;  // rows of the storage data
  // Those that have a byte in [begin, end). Exact as long as items do not overlap.
  std::span<const std::uint32_t> touching(std::string_view file, std::uint64_t begin,
                                          std::uint64_t end) const;
  const StorageData& storage() const { return storage_; }

 private:
  const StorageData& storage_;
  PodVector<std::uint32_t> rows_;
  PodVector<std::uint32_t> starts_;  // by file id
  MapByName<std::string_view, std::uint32_t> file_ids_;
};

// The item of exactly this place; null when there is none.
const ManifestItem* find_item(const ManifestFile& file, std::uint64_t offset, std::uint64_t length);

// "a, b and 10 more": the names that some items belong to.
std::string names_of(const StorageData& storage, std::span<const std::uint32_t> rows);

// A description and what belongs to it: the whole checkpoint, or one rank's part of it.
struct DcpPart {
  std::string metadata_file;
  std::uint64_t metadata_bytes = 0;
  std::optional<int> rank;           // in rank-local checkpoints
  std::optional<Metadata> metadata;  // absent: cannot be read
  std::optional<SaveId> save_id;     // when cairn wrote it
  std::string manifest_file;         // empty: none
  std::optional<Manifest> manifest;  // absent: none that can be used
};

// Reads the description and the manifest in the file system; what is wrong with them is found.
DcpPart read_part(const FileSystem& files, const std::vector<FileEntry>& entries, const FileEntry& metadata,
                  Findings& findings);

// That the description is whole in itself and agrees with the manifest.
void check_places(const DcpPart& part, const ItemsByFile& items, Findings& findings);
// That chunks tile their tensors.
void check_cover(const Metadata& metadata, Findings& findings);

// Every block of every file of the manifest against its checksums.
void check_blocks(const FileSystem& files, const DcpPart& part, const ItemsByFile& items, Findings& findings);

// Every item as an archive of its own: for checkpoints without a manifest.
void check_archives(const FileSystem& files, const DcpPart& part, Findings& findings);

}  // namespace cairn
