// Many reads or writes of one file at once, through io_uring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cairn {

// A handful of rings, lent to whoever has bytes to move. May be used by many threads at once.
class UringPool {
 public:
  // Null where the kernel has no io_uring, refuses it, or cairn was built without liburing.
  static std::shared_ptr<UringPool> make();
  virtual ~UringPool() = default;

  // Moves all of `bytes`, in pieces that travel side by side. Returns how many arrived before the first
  // failure or the end of the file, and says in `os_error` which failure it was (0: none).
  virtual std::size_t read(int fd, std::uint64_t offset, std::byte* bytes, std::size_t size,
                           int& os_error) = 0;
  virtual std::size_t write(int fd, std::uint64_t offset, const std::byte* bytes, std::size_t size,
                            int& os_error) = 0;
};

}  // namespace cairn
