// How large a file this process may write (RLIMIT_FSIZE).
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <limits>

namespace cairn {

// Whoever writes beyond it gets a signal that ends the process, unless somebody ignores it; a library has no
// say in that. So nobody here tries.
inline std::uint64_t largest_file() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::uint64_t>::max();
  return limit.rlim_cur;
}

}  // namespace cairn
