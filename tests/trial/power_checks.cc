#include "power_checks.h"

#include <fmt/format.h>

#include <filesystem>

#include "cairn/error.h"
#include "cairn/gc.h"
#include "cairn/verify.h"

namespace cairn::trial {
namespace {

constexpr int kNextVersion = 7000;

std::string shown(const std::optional<int>& version) {
  return version ? fmt::format("version {}", *version) : "no checkpoint";
}

void check_verify(const std::shared_ptr<FileSystem>& files, bool there) {
  try {
    const VerifyReport report = verify(*files);
    require(there, "verify() finds a checkpoint where there is none");
    require(report.ok(), "verify() finds fault: " + (report.ok() ? "" : to_string(report.problems.front())));
  } catch (const Error& e) {
    require(!there && e.code() == ErrorCode::kNotFound, fmt::format("verify() fails: {}", e.what()));
  }
}

void check_gc(const std::shared_ptr<FileSystem>& files, const std::optional<int>& version) {
  gc(*files);
  require(version_in(files) == version, "a clean-up changed the checkpoint");
  require(gc(*files, {.dry_run = true}).files.empty(), "a clean-up left something");
}

void check_next_save(const std::shared_ptr<FileSystem>& files, bool marked) {
  const Cut alone{1, 1};  // threads are most of what a small save costs
  save_version(files, kNextVersion, alone);
  require(version_in(files) == kNextVersion, "the next save is not there");
  if (marked) check_clean(*files, alone);
}

// The same where files, locks and directories are real.
void check_in_directory(const CrashState& state, const Expected& expected, const std::optional<int>& version,
                        const std::string& scratch) {
  const Cut together{2, 1};
  std::filesystem::remove_all(scratch);
  write_tree(state.tree, scratch);
  const std::string path = scratch + "/" + expected.path;
  if (version) require(verify(path).ok(), "verify() finds fault with the directory");
  save_version(path, kNextVersion, together);
  require(version_in(path) == kNextVersion, "the next save is not in the directory");
  if (expected.marked) check_clean(*posix_file_system(path), together);
  std::filesystem::remove_all(scratch);
}

}  // namespace

void check_checkpoint(const CrashState& state, const Expected& expected, const std::string& scratch,
                      Tally& tally) {
  const std::uint64_t nth = tally["states"]++;
  const std::shared_ptr<FileSystem> files = in_memory(state.tree, expected.path);
  const std::optional<int> found = version_in(files);
  const bool allowed = found == expected.after || (!state.reported && found == expected.before);
  require(allowed,
          fmt::format("{} is there after {} was to replace {}{}", shown(found), shown(expected.after),
                      shown(expected.before), state.reported ? ", and success was reported" : ""));
  ++tally[!found ? "absent" : found == expected.before ? "old" : "new"];
  if (state.reported) ++tally["reported"];
  if (nth % 4 == 0) {
    check_verify(files, found.has_value());
    ++tally["verified"];
  }
  if (nth % 16 == 4) {
    check_gc(files, found);
    ++tally["cleaned"];
  }
  if (nth % 8 == 0) {
    check_next_save(files, expected.marked);
    ++tally["next_saves"];
  }
  if (nth % 256 == 128) {
    check_in_directory(state, expected, found, scratch);
    ++tally["in_directory"];
  }
}

void check_cleaned(const CrashState& state, const std::string& path) {
  if (!state.reported) return;
  const std::shared_ptr<FileSystem> files = in_memory(state.tree, path);
  require(gc(*files, {.dry_run = true}).files.empty(), "what a clean-up removed is there again");
}

void check_file(const CrashState& state, const std::string& path, const FileBytes& before,
                const FileBytes& after, Tally& tally) {
  const FileBytes found = state.tree.find(path);
  const auto same = [&](const FileBytes& other) {
    return (found == nullptr) == (other == nullptr) && (found == nullptr || *found == *other);
  };
  const bool old = same(before);
  require(same(after) || (old && !state.reported), path + " is neither absent nor whole");
  ++tally["states"];
  ++tally[found == nullptr ? "absent" : old ? "old" : "new"];
  if (state.reported) ++tally["reported"];
}

void check_indexed(const CrashState& state, const std::string& path, const Tree& before, const Tree& after,
                   Tally& tally) {
  const std::string index = path + "/model.safetensors.index.json";
  check_file(state, index, before.find(index), after.find(index), tally);
  const FileBytes found = state.tree.find(index);
  if (found == nullptr) return;
  const auto files = (*found == *after.find(index) ? after : before).list(path);
  for (const auto& [name, bytes] : *files) {
    const FileBytes there = state.tree.find(path + "/" + name);
    require(there != nullptr && *there == *bytes, "the index is there, and " + name + " is not what it was");
  }
}

}  // namespace cairn::trial
