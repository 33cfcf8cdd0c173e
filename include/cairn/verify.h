// Is every byte of a checkpoint what was written?
//
//   const VerifyReport report = verify("run/step-1000");
//   for (const Problem& p : report.problems) std::cerr << to_string(p) << "\n";
//   if (!report.ok()) restore_from_elsewhere();
//
// A checkpoint that cairn wrote has a manifest: sizes and checksums of all its files, the description among
// them. Any single changed bit, a lost, cut, grown or exchanged file is found. One that stock PyTorch wrote
// has a CRC-32 for each record of its archives, and nothing for what lies around them. Safetensors files have
// no checksums at all: their headers and sizes are checked. What could not be checked is counted, with the
// reason.
//
// Damage is no exception: it stands in the report. Errors are thrown when there is nothing to look at
// (kNotFound), or nothing that verify understands (kUnsupported).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checkpoint.h"
#include "cairn/checkpoint_storage.h"
#include "cairn/limits.h"
#include "cairn/storage.h"

namespace cairn {

enum class ProblemKind : std::uint8_t {
  kMissing,      // a file is not there
  kShort,        // a file has fewer bytes than were written
  kLong,         // or more
  kFlipped,      // bytes that are not those that were written
  kSwapped,      // the same, and they are those of another place
  kForeign,      // a file of another save
  kUncovered,    // elements that no chunk holds; chunks and objects that have no place in a file
  kOverlapping,  // chunks of a tensor, or items of a file, that share bytes
  kMisplaced,    // outside of its tensor, of its file, or not where the manifest has it
  kMismatched,   // the stored item is of another shape or element type than the description says
  kUnreadable,   // breaks its format's rules, or the system cannot read it
};
std::string_view name_of(ProblemKind kind);  // "missing", "short", ...

struct Problem {
  ProblemKind kind = ProblemKind::kUnreadable;
  std::string file;                     // in the checkpoint's directory; empty: the checkpoint as a whole
  std::string tensor;                   // the tensor or object that is hit, when it is one
  std::optional<std::uint64_t> offset;  // in the file
  std::string text;                     // for people, without file and tensor
  bool operator==(const Problem&) const = default;
};
std::string to_string(const Problem& problem);  // "file: tensor 'w': at byte 8: text (kind)"

// Bytes that nothing was known about.
struct Unchecked {
  std::string why;
  std::uint64_t bytes = 0;
  bool operator==(const Unchecked&) const = default;
};

struct VerifyReport {
  Format format = Format::kDcp;
  std::vector<Problem> problems;        // by file and place; at most kMostProblems
  std::uint64_t problems_left_out = 0;  // beyond those
  std::uint64_t files = 0;              // that make up the checkpoint
  std::uint64_t tensors = 0;
  std::uint64_t objects = 0;
  std::uint64_t items = 0;          // stored pieces of tensors, and objects
  std::uint64_t bytes_checked = 0;  // read and compared with a checksum
  std::vector<Unchecked> unchecked;
  std::vector<FileEntry> debris;  // what dead saves left beside it (see gc.h); no problem

  bool ok() const { return problems.empty(); }
};

inline constexpr std::size_t kMostProblems = 10000;

struct VerifyOptions {
  int threads = 0;  // 0: as many as cores
  std::uint64_t memory_budget = std::uint64_t{256} << 20;
  Limits limits = {};
  ProgressCallback progress = {};
};

// A checkpoint of any format.
VerifyReport verify(const std::string& url, const VerifyOptions& options = {});

// A DCP checkpoint, wherever it lies.
VerifyReport verify(const FileSystem& files, const VerifyOptions& options = {});

}  // namespace cairn
