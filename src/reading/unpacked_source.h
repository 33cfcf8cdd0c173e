// A compressed item that is too large for memory, as if it were not compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/source.h"
#include "cairn/transform.h"

namespace cairn {

// The stream is unpacked once to learn its length, and again for those who read it in ascending order. Its
// first and its last bytes, where an archive has what is not elements, are kept. Who goes back starts from
// the front again; who does so often gets Error(kLimit).
class UnpackedSource final : public ByteSource {
 public:
  // `open` begins to unpack, from the front; what it gives may borrow `packed`.
  using Open = std::function<std::unique_ptr<ItemDecoder>()>;
  UnpackedSource(std::shared_ptr<const ByteSource> packed, Open open);

  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return packed_->name(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override;

  // The CRC-32 of these bytes is worked out as they pass, whether somebody wants them or not.
  void sum(std::uint64_t begin, std::uint64_t end);
  // What it is, when the rest of them has passed too.
  std::uint32_t finish_sum() const;

 private:
  void find_ends();
  void start_again() const;
  void take(std::span<std::byte> to) const;
  void skip_to(std::uint64_t offset) const;

  std::shared_ptr<const ByteSource> packed_;
  const Open open_;
  std::uint64_t size_ = 0;
  std::string head_;
  std::string tail_;
  std::uint64_t sum_begin_ = 0, sum_end_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::unique_ptr<ItemDecoder> decoder_;
  mutable std::vector<std::byte> passed_over_;  // where bytes go that nobody wants
  mutable std::uint64_t position_ = 0;          // of the decoder
  mutable std::uint64_t summed_ = 0;            // how far the sum has come
  mutable std::uint32_t crc_ = 0;
  mutable int starts_ = 0;
};

}  // namespace cairn
