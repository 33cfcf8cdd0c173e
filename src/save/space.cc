#include "save/space.h"

#include <fmt/format.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <string>

#include "base/checked.h"

namespace cairn {

std::uint64_t bytes_of(const WriteItem& item) {
  return static_cast<std::uint64_t>(item.chunk_storage_size().value_or(0));
}

void check_space(const FileSystem& files, std::span<const SavePlan> plans, OnLowSpace low_space,
                 std::vector<std::string>& warnings) {
  if (low_space == OnLowSpace::kIgnore) return;
  const std::uint64_t room = files.free_space().value_or(std::numeric_limits<std::uint64_t>::max());
  std::uint64_t needed = 0;
  std::optional<std::string> first;  // without room
  for (const SavePlan& plan : plans) {
    for (const WriteItem item : plan.items) {
      needed = checked_add(needed, bytes_of(item));
      if (needed > room && !first) first = item.index.fqn;
    }
  }
  if (!first) return;
  Error error(ErrorCode::kIo, fmt::format("the checkpoint has {} bytes, and there is room for {}: free some, "
                                          "or save elsewhere",
                                          needed, room));
  error.of_tensor(*first).in_file(files.root());
  if (low_space == OnLowSpace::kError) throw error.with_errno(ENOSPC);
  if (warnings.empty() || warnings.back() != error.what()) warnings.emplace_back(error.what());
}

bool is_full(const Error& error) { return error.os_error() == ENOSPC || error.os_error() == EDQUOT; }

}  // namespace cairn
