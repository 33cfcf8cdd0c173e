#include "storage/s3/source.h"

#include <utility>

#include "base/source.h"
#include "storage/s3/objects.h"

namespace cairn::s3 {
namespace {

class ObjectSource final : public ByteSource {
 public:
  ObjectSource(std::shared_ptr<Bucket> bucket, std::string key, std::uint64_t size, std::string etag)
      : bucket_(std::move(bucket)),
        key_(std::move(key)),
        shown_(bucket_->client().shown(key_)),
        size_(size),
        etag_(std::move(etag)) {}

  std::uint64_t size() const override { return size_; }
  bool is_far() const override { return true; }
  const std::string& name() const override { return shown_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    check_range(offset, to.size(), size_, shown_);
    get(bucket_->client(), key_, etag_, offset, to);
  }

 private:
  std::shared_ptr<Bucket> bucket_;
  std::string key_;
  std::string shown_;
  std::uint64_t size_;
  std::string etag_;
};

}  // namespace

std::shared_ptr<const ByteSource> object_source(std::shared_ptr<Bucket> bucket, std::string key,
                                                std::uint64_t size, std::string etag) {
  return std::make_shared<ObjectSource>(std::move(bucket), std::move(key), size, std::move(etag));
}

}  // namespace cairn::s3
