// Checkpoints to be verified, and what tests ask of a report.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/verify.h"
#include "testing/dcp.h"
#include "testing/states.h"

namespace cairn {

using Files = std::shared_ptr<FileSystem>;

// Two tensors of several blocks, a small one and an object, in two files.
inline StateDict large_state(int version) {
  StateDict state;
  state.set("big", Value(numbered({3, 1 << 18}, version)));
  state.set("half", Value(numbered({3 << 17}, version + 1)));
  state.set("small", Value(numbered({100}, version + 2)));
  state.set("step", Value(version));
  return state;
}

// Everything in one data file, with something changed.
template <class Change> WriteOptions one_file(Change change) {
  WriteOptions options;
  options.files_per_rank = 1;
  change(options);
  return options;
}
inline WriteOptions one_file() {
  return one_file([](WriteOptions&) {});
}
inline void with_zstd(WriteOptions& options) { options.transforms = {"zstd"}; }
inline void with_strong_hashes(WriteOptions& options) { options.strong_hashes = true; }
inline void without_checksums(WriteOptions& options) { options.checksums = false; }

inline Files saved(const StateDict& state, WriteOptions options = {}) {
  Files files = memory_file_system();
  if (options.files_per_rank == 0) options.files_per_rank = 2;
  const auto writer = dcp_writer(files, options);
  SaveOptions how;
  how.writer = writer.get();
  save(state, "memory", how);
  return files;
}

inline Files saved_by_ranks(int ranks) {
  Files files = memory_file_system();
  run_ranks(ranks, [&](Group& group) {
    const auto writer = dcp_writer(files);
    SaveOptions how;
    how.group = &group;
    how.use_collectives = false;
    how.writer = writer.get();
    save(trainer_state(group.rank(), ranks, 3), "memory", how);
  });
  return files;
}

// The names of the files of a kind, in order.
inline std::vector<std::string> names(const FileSystem& files, DcpName::Kind kind) {
  std::vector<std::string> found;
  for (const FileEntry& entry : files.list())
    if (const auto name = parse_dcp_name(entry.name); name && name->kind == kind) found.push_back(entry.name);
  return found;
}

inline std::string manifest_in(const FileSystem& files) {
  return names(files, DcpName::Kind::kManifest).at(0);
}

// Where an item is.
inline StorageInfo place_of(const FileSystem& files, const std::string& name) {
  const Metadata metadata = read_dcp_metadata(*files.open(".metadata"));
  for (std::size_t i = 0; i < metadata.storage_data.size(); ++i)
    if (metadata.storage_data.fqn(i) == name) return metadata.storage_data.info(i);
  throw Error(ErrorCode::kNotFound, name);
}

inline bool has(const VerifyReport& report, ProblemKind kind, std::string_view file = "",
                std::string_view tensor = "", std::string_view text = "") {
  return std::any_of(report.problems.begin(), report.problems.end(), [&](const Problem& p) {
    return p.kind == kind && (file.empty() || p.file == file) && (tensor.empty() || p.tensor == tensor) &&
           p.text.find(text) != p.text.npos;
  });
}

inline std::string all_of(const VerifyReport& report) {
  std::string text;
  for (const Problem& problem : report.problems) text += to_string(problem) + "\n";
  return text;
}

}  // namespace cairn
