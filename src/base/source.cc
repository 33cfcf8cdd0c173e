#include "base/source.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "cairn/error.h"

namespace cairn {
namespace {

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

}  // namespace

void check_range(std::uint64_t offset, std::uint64_t length, std::uint64_t size, const std::string& file) {
  if (offset <= size && length <= size - offset) return;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("{} bytes are expected here, but the data ends at byte {}", length, size))
      .in_file(file)
      .at(offset);
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
