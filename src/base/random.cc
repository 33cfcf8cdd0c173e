#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "cairn/error.h"

namespace cairn {

// std::random_device asks for a newer C library than wheels may.
void fill_randomly(std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = ::getrandom(to.data(), to.size(), 0);
    if (got < 0 && errno != EINTR) throw Error(ErrorCode::kIo, "no random numbers").with_errno(errno);
    if (got > 0) to = to.subspan(static_cast<std::size_t>(got));
  }
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_randomly(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace cairn
