#include "runs/step_state.h"

#include <fmt/format.h>

#include <utility>

#include "cairn/checkpoint.h"
#include "cairn/error.h"
#include "checkpoint/dcp_names.h"

namespace cairn {
namespace {

bool says_what_is_there(const Error& e) {
  switch (e.code()) {
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
    case ErrorCode::kLimit: return true;
    default: return false;
  }
}

StepState state_of(std::shared_ptr<FileSystem> files, const std::string& name, const Limits& limits) {
  StepState state;
  try {
    const auto checkpoint = Checkpoint::open(std::move(files), name, limits);
    for (const FileSummary& file : checkpoint->files()) {
      if (!file.referenced) continue;
      if (!file.size) return {.why = fmt::format("{} is missing", file.name)};
      if (*file.size < file.needed)
        return {.why = fmt::format("{} has {} bytes of {}", file.name, *file.size, file.needed)};
      state.bytes += *file.size;
    }
    state.complete = true;
  } catch (const Error& e) {
    if (!says_what_is_there(e)) throw;
    state.why = e.message();
  }
  return state;
}

// Of checkpoints in folders beneath; all of them have to be whole.
StepState state_of_several(const FileSystem& files, const std::vector<FileEntry>& entries,
                           const Limits& limits, StepState none) {
  StepState all = std::move(none);
  for (const FileEntry& entry : entries) {
    if (entry.kind != FileEntry::Kind::kFolder) continue;
    std::shared_ptr<FileSystem> folder = files.enter(entry.name);
    if (!folder->stat(kMetadataName)) continue;
    StepState one = state_of(std::move(folder), "", limits);
    if (!one.complete) return {.why = entry.name + ": " + one.why};
    all = {.complete = true, .bytes = all.complete ? all.bytes + one.bytes : one.bytes};
  }
  return all;
}

}  // namespace

StepState look_at_step(const std::shared_ptr<FileSystem>& run, const FileEntry& name, const Limits& limits) {
  if (name.kind == FileEntry::Kind::kFile) return state_of(run, name.name, limits);
  if (name.kind != FileEntry::Kind::kFolder) return {.why = "neither a folder nor a file"};
  try {
    const std::shared_ptr<FileSystem> folder = run->enter(name.name);
    StepState state = state_of(folder, "", limits);
    return state.complete ? state : state_of_several(*folder, folder->entries(), limits, std::move(state));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound) throw;
    return {.why = "it is gone"};
  }
}

}  // namespace cairn
