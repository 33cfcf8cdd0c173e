#include "base/source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "cairn/error.h"

namespace cairn {
namespace {

void check_range(std::uint64_t offset, std::uint64_t length, std::uint64_t size) {
  if (offset <= size && length <= size - offset) return;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("{} bytes are expected here, but the data ends at byte {}", length, size))
      .at(offset);
}

class FileSource final : public ByteSource {
 public:
  FileSource(Descriptor file, std::uint64_t size, std::string path)
      : file_(std::move(file)), size_(size), path_(std::move(path)) {}

  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return path_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    try {
      check_range(offset, to.size(), size_);
      fill(offset, to);
    } catch (Error& e) {
      e.in_file(path_);
      throw;
    }
  }

 private:
  // The kernel hands out at most 2 GiB at a time, and less whenever it likes.
  void fill(std::uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t got = ::pread(file_.get(), to.data(), to.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        throw Error(ErrorCode::kIo, "cannot read").at(offset).with_errno(errno);
      }
      if (got == 0) {
        throw Error(ErrorCode::kCorrupt,
                    fmt::format("the file ends here, but had {} bytes when it was opened", size_))
            .at(offset);
      }
      offset += static_cast<std::uint64_t>(got);
      to = to.subspan(static_cast<std::size_t>(got));
    }
  }

  Descriptor file_;
  std::uint64_t size_;
  std::string path_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(ByteSpan bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  const std::string& name() const override { return name_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), bytes_.size());
    if (!to.empty()) std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }

 private:
  ByteSpan bytes_;
  std::string name_;
};

class SliceSource final : public ByteSource {
 public:
  SliceSource(std::shared_ptr<const ByteSource> source, std::uint64_t offset, std::uint64_t length)
      : source_(std::move(source)), offset_(offset), length_(length) {}

  std::uint64_t size() const override { return length_; }
  const std::string& name() const override { return source_->name(); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), length_);
    try {
      source_->read_at(offset_ + offset, to);
    } catch (const Error& e) {
      throw with_offset_of_slice(e);
    }
  }

 private:
  // The same failure, its place counted from the start of the slice.
  Error with_offset_of_slice(const Error& e) const {
    Error moved(e.code(), e.message());
    moved.in_file(e.file()).with_errno(e.os_error());
    if (e.offset()) moved.at(*e.offset() - offset_);
    return moved;
  }

  std::shared_ptr<const ByteSource> source_;
  std::uint64_t offset_;
  std::uint64_t length_;
};

int open_read_only(const std::string& path) {
  for (;;) {
    // O_NONBLOCK: opening a pipe by mistake must fail below, not wait for a writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

}  // namespace

std::shared_ptr<const ByteSource> open_file(const std::string& path) {
  const int fd = open_read_only(path);
  if (fd < 0) {
    const int os_error = errno;
    const bool absent = os_error == ENOENT || os_error == ENOTDIR;
    throw Error(absent ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open")
        .in_file(path)
        .with_errno(os_error);
  }
  return source_of_descriptor(fd, path);
}

std::shared_ptr<const ByteSource> source_of_descriptor(int fd, const std::string& path) {
  Descriptor file(fd);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) {
    throw Error(ErrorCode::kIo, "cannot read the file's size").in_file(path).with_errno(errno);
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kIo, "cannot read as a file").in_file(path).with_errno(EISDIR);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo, "is a device or a pipe, not a regular file").in_file(path).with_errno(EINVAL);
  }
  return std::make_shared<FileSource>(std::move(file), static_cast<std::uint64_t>(status.st_size), path);
}

std::shared_ptr<const ByteSource> memory_source(ByteSpan bytes, std::string name) {
  return std::make_shared<MemorySource>(bytes, std::move(name));
}

std::shared_ptr<const ByteSource> slice_of(std::shared_ptr<const ByteSource> source, std::uint64_t offset,
                                           std::uint64_t length) {
  check_range(offset, length, source->size());
  return std::make_shared<SliceSource>(std::move(source), offset, length);
}

std::string read_all(const ByteSource& source) {
  std::string text(source.size(), '\0');
  source.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace cairn
