#include "storage/scratch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file_limit.h"
#include "base/source.h"
#include "cairn/error.h"
#include "cairn/storage.h"
#include "storage/file_channel.h"

namespace cairn {
namespace {

[[noreturn]] void fail(const char* what, const std::string& directory, int os_error) {
  throw Error(ErrorCode::kIo, what).in_file(directory).with_errno(os_error);
}

int open_nameless(const std::string& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = directory + "/.cairn-spill-XXXXXX";  // a file system that has none
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail("cannot make a file for an item that is too large for the budget", directory, errno);
  ::unlink(name.c_str());
  return fd;
}

class ScratchSource final : public ByteSource {
 public:
  ScratchSource(Descriptor file, std::uint64_t size, const std::string& name)
      : channel_(std::move(file), name, IoPath::kBuffered, nullptr), size_(size) {}
  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return channel_.path(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), size_, name());
    channel_.read(offset, to);
  }

 private:
  mutable FileChannel channel_;
  std::uint64_t size_;
};

}  // namespace

ScratchFile::ScratchFile(const std::string& directory)
    : directory_(directory), file_(open_nameless(directory)) {}

void ScratchFile::append(ByteSpan bytes) {
  constexpr const char* kWhat = "cannot write an item that is too large for the budget";
  if (bytes.size() > largest_file() || size_ > largest_file() - bytes.size()) fail(kWhat, directory_, EFBIG);
  while (!bytes.empty()) {
    const ssize_t put = ::write(file_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(kWhat, directory_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    size_ += static_cast<std::uint64_t>(put);
  }
}

std::shared_ptr<const ByteSource> ScratchFile::take(const std::string& name) {
  return std::make_shared<ScratchSource>(std::move(file_), size_, name);
}

std::string scratch_directory(const std::string& url) {
  namespace fs = std::filesystem;
  const std::optional<std::string> local = url.empty() ? std::nullopt : local_path_of(url);
  if (!local) return fs::temp_directory_path().string();
  std::error_code error;
  fs::path path = fs::absolute(*local, error).parent_path();
  while (!fs::is_directory(path, error) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

}  // namespace cairn
