#include "measure/bench_place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "cairn/error.h"
#include "cairn/storage.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const std::string& path, const std::error_code& error) {
  throw Error(ErrorCode::kIo, what).in_file(path).with_errno(error.value());
}

double in_gib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1U << 30); }

std::optional<std::uint64_t> number_in(const char* file) {
  std::uint64_t number = 0;
  return std::ifstream(file) >> number ? std::optional(number) : std::nullopt;
}

std::uint64_t free_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  for (std::string unit; meminfo >> key >> kib; std::getline(meminfo, unit))
    if (key == "MemAvailable:") return kib << 10;
  return std::numeric_limits<std::uint64_t>::max();
}

// What a container may still take. Its page cache counts as used, though the system would give it up: too
// careful rather than killed.
std::uint64_t free_in_container() {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  constexpr const char* kPairs[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, used_file] : kPairs) {
    const std::optional<std::uint64_t> limit = number_in(limit_file);
    const std::optional<std::uint64_t> used = number_in(used_file);
    if (limit && used) least = std::min(least, *limit > *used ? *limit - *used : 0);
  }
  return least;
}

}  // namespace

BenchPlace::BenchPlace(const std::string& url) : path_(local_path_of(url).value_or("")) {
  if (path_.empty() && !url.empty())
    throw Error(ErrorCode::kUnsupported, "only what is on a disk can be measured: give a directory")
        .in_file(url);
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_, error))
    throw Error(ErrorCode::kConflict, "is no directory").in_file(path_);
  for (fs::path step = fs::absolute(path_); !fs::exists(step, error) && step.has_relative_path();
       step = step.parent_path())
    if (step.has_filename()) made_ = step.string();
  if (!made_.empty() && !fs::create_directories(path_, error) && error)
    fail("cannot make the directory", path_, error);
  const bool is_empty = fs::is_empty(path_, error);
  if (error) fail("cannot look into the directory", path_, error);
  if (!is_empty)
    throw Error(ErrorCode::kConflict, "is not empty: give a new or an empty directory").in_file(path_);
}

BenchPlace::~BenchPlace() {
  if (keep_) return;
  std::error_code ignored;
  fs::remove_all(raw(), ignored);
  fs::remove_all(checkpoint(), ignored);
  // Directories that were made here go, unless somebody else uses them by now.
  for (fs::path step = fs::absolute(path_); !made_.empty(); step = step.parent_path()) {
    if (step.has_filename() && !fs::remove(step, ignored)) return;
    if (step.string() == made_) return;
  }
}

void BenchPlace::remove_checkpoint() const { fs::remove_all(checkpoint()); }

// /proc/self/mountinfo: "36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/sda1 rw".
std::string BenchPlace::file_system() const {
  struct stat status;
  if (::stat(path_.c_str(), &status) != 0) return {};
  const std::string device = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word, number;
    words >> word >> word >> number;
    if (number != device) continue;
    while (words >> word && word != "-") {
    }
    return words >> word ? word : std::string();
  }
  return {};
}

bool BenchPlace::is_in_memory() const {
  const std::string type = file_system();
  return type == "tmpfs" || type == "ramfs";
}

void BenchPlace::require_room(std::uint64_t bytes) const {
  const std::optional<std::uint64_t> room = posix_file_system(path_)->free_space();
  if (!room || bytes <= *room) return;
  throw Error(ErrorCode::kIo,
              fmt::format("{:.2f} GiB are needed, and there is room for {:.2f} GiB: free some, "
                          "go elsewhere, or measure with less (--size)",
                          in_gib(bytes), in_gib(*room)))
      .in_file(path_)
      .with_errno(ENOSPC);
}

void BenchPlace::require_memory(std::uint64_t bytes) {
  const std::uint64_t room = std::min(free_memory(), free_in_container());
  if (bytes <= room) return;
  throw Error(
      ErrorCode::kLimit,
      fmt::format("{:.2f} GiB of memory are needed, for the state, its snapshot and files that lie in "
                  "memory, and {:.2f} GiB are free: measure with less (--size)",
                  in_gib(bytes), in_gib(room)));
}

}  // namespace cairn
