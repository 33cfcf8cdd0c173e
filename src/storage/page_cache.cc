#include "storage/page_cache.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>

#include "storage/descriptor.h"

namespace cairn {

bool lives_in_memory(int fd) {
  struct statfs status;
  return ::fstatfs(fd, &status) == 0 && (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

bool is_cached(int fd, std::uint64_t size) {
  constexpr std::uint64_t kSamples = 32;
  if (size == 0) return false;
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t pages = (size + page - 1) / page;
  std::uint64_t warm = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    unsigned char resident = 0;
    void* const at = static_cast<std::byte*>(map) + pages * i / kSamples * page;
    if (::mincore(at, 1, &resident) == 0 && (resident & 1U) != 0) ++warm;
  }
  ::munmap(map, size);
  return warm > kSamples / 2;
}

bool forget_cached(const std::string& directory) {
  bool forgotten = true;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const Descriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status;
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    (void)::fdatasync(file.get());
    (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    if (is_cached(file.get(), static_cast<std::uint64_t>(status.st_size))) forgotten = false;
  }
  return forgotten;
}

}  // namespace cairn
