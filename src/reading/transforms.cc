#include "reading/transforms.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/sink.h"
#include "cairn/error.h"
#include "format/zstd_decoder.h"
#include "storage/scratch.h"

namespace cairn {
namespace {

[[maybe_unused]] constexpr std::string_view kZstd = "stream.zstd/1";
[[maybe_unused]] constexpr std::size_t kUnpackedPiece = 128U << 10;  // bytes that are unpacked at a time
constexpr std::size_t kDecodedPiece = 1U << 20;                      // the same, by somebody else
[[maybe_unused]] constexpr std::uint64_t kMuch = 64U << 20;          // worth a look before memory is taken

// A source that keeps its bytes itself.
struct OwnedBytes {
  std::string bytes;
  std::shared_ptr<const ByteSource> source;
};

std::shared_ptr<const ByteSource> source_of(std::string bytes, std::string name) {
  auto owned = std::make_shared<OwnedBytes>();
  owned->bytes = std::move(bytes);
  owned->source = memory_source(as_bytes(owned->bytes), std::move(name));
  return {owned, owned->source.get()};
}

#ifdef CAIRN_HAVE_ZSTD

// Calls f with what comes out, piece by piece, for as long as it returns true.
template <class F> void unpack_zstd(const ByteSource& item, std::uint64_t max_bytes, F&& f) {
  ZstdDecoder decoder(item, max_bytes);
  std::vector<std::byte> piece(kUnpackedPiece);
  for (std::size_t got = piece.size(); got == piece.size();) {
    got = decoder.read(piece);
    if (!f(std::span<const std::byte>(piece).first(got))) return;
  }
}

void unzstd(const ByteSource& item, std::uint64_t max_bytes, ByteSink& sink) {
  unpack_zstd(item, max_bytes, [&](ByteSpan piece) {
    sink.append(piece);
    return true;
  });
}

// In memory for exactly what it is: how much that is is found out first where it is much, so that a stream
// which gives more than it may never has it.
std::string unzstd_in_memory(const ByteSource& item, std::uint64_t max_bytes) {
  std::string plain;
  std::uint64_t length = 0;
  const auto add = [&](ByteSpan piece) {
    plain.append(as_text(piece));
    length = plain.size();
    return length < kMuch;
  };
  unpack_zstd(item, max_bytes, add);
  if (length < kMuch) return plain;
  plain = {};
  length = 0;
  unpack_zstd(item, max_bytes, [&](ByteSpan piece) {
    length += piece.size();
    return true;
  });
  plain.reserve(length);
  unpack_zstd(item, max_bytes, [&](ByteSpan piece) {
    plain.append(as_text(piece));
    return true;
  });
  return plain;
}

#endif

// Bytes in memory up to a size, and all of them in a file beyond it.
class SpillSink final : public ByteSink {
 public:
  SpillSink(std::uint64_t most_in_memory, const std::string& directory)
      : most_(most_in_memory), directory_(directory) {}

  void append(ByteSpan bytes) override {
    memory_ += as_text(bytes);
    if (memory_.size() <= most_) return;
    if (!file_) file_.emplace(directory_);
    file_->append(as_bytes(memory_));
    memory_.clear();
    most_ = 0;  // from here on all goes to the file
  }

  std::shared_ptr<const ByteSource> take(const std::string& name) {
    return file_ ? file_->take(name) : source_of(std::move(memory_), name);
  }

 private:
  std::uint64_t most_;
  const std::string& directory_;
  std::string memory_;
  std::optional<ScratchFile> file_;
};

[[noreturn]] void refuse_transform(const std::string& transform) {
#ifdef CAIRN_HAVE_ZSTD
  const std::string_view known = kZstd;
#else
  const std::string_view known = "none, in this build without libzstd";
#endif
  throw Error(ErrorCode::kUnsupported, fmt::format("the item went through the transform '{}'; known are: {}",
                                                   transform.substr(0, 256), known));
}

class ZstdStream final : public ItemDecoder {
 public:
  ZstdStream(const ByteSource& item, std::uint64_t max_bytes) : decoder_(item, max_bytes) {}
  std::size_t read(std::span<std::byte> to) override { return decoder_.read(to); }

 private:
  ZstdDecoder decoder_;
};

class BoundedStream final : public ItemDecoder {
 public:
  BoundedStream(std::unique_ptr<ItemDecoder> inner, std::uint64_t most)
      : inner_(std::move(inner)), most_(most), left_(most) {}

  std::size_t read(std::span<std::byte> to) override {
    const std::size_t got = inner_->read(to);
    if (got > left_)
      throw Error(ErrorCode::kLimit, fmt::format("a transform that gives more than {} bytes", most_));
    left_ -= got;
    return got;
  }

 private:
  std::unique_ptr<ItemDecoder> inner_;
  const std::uint64_t most_;
  std::uint64_t left_;
};
void undo([[maybe_unused]] const ByteSource& item, const std::string& transform,
          [[maybe_unused]] std::uint64_t max_bytes, [[maybe_unused]] ByteSink& sink) {
#ifdef CAIRN_HAVE_ZSTD
  if (transform == kZstd) return unzstd(item, max_bytes, sink);
#endif
  refuse_transform(transform);
}

std::string undo_in_memory([[maybe_unused]] const ByteSource& item, const std::string& transform,
                           [[maybe_unused]] std::uint64_t max_bytes) {
#ifdef CAIRN_HAVE_ZSTD
  if (transform == kZstd) return unzstd_in_memory(item, max_bytes);
#endif
  refuse_transform(transform);
}

}  // namespace

std::unique_ptr<ItemDecoder> open_stream(const ByteSource& item, std::uint64_t max_bytes) {
  return std::make_unique<ZstdStream>(item, max_bytes);
}

std::unique_ptr<ItemDecoder> bounded(std::unique_ptr<ItemDecoder> decoder, std::uint64_t max_bytes) {
  return std::make_unique<BoundedStream>(std::move(decoder), max_bytes);
}

std::string read_to_end(ItemDecoder& decoder) {
  std::string all;
  std::vector<std::byte> piece(kDecodedPiece);
  for (std::size_t got = piece.size(); got == piece.size();) {
    got = decoder.read(piece);
    all += as_text(std::span(piece).first(got));
  }
  return all;
}

bool can_be_streamed([[maybe_unused]] const std::vector<std::string>& transforms) {
#ifdef CAIRN_HAVE_ZSTD
  return transforms.size() == 1 && transforms.front() == kZstd;
#else
  return false;
#endif
}

std::string undo_transforms_in_memory(const ByteSource& item, const std::vector<std::string>& transforms,
                                      std::uint64_t max_bytes) {
  std::string bytes;
  const ByteSource* from = &item;
  std::shared_ptr<const ByteSource> between;
  for (const std::string& transform : transforms) {
    bytes = undo_in_memory(*from, transform, max_bytes);
    between = memory_source(as_bytes(bytes), item.name());
    from = between.get();
  }
  return transforms.empty() ? read_all(item) : bytes;
}

std::shared_ptr<const ByteSource> undo_transforms_anywhere(const ByteSource& item,
                                                           const std::vector<std::string>& transforms,
                                                           std::uint64_t max_bytes,
                                                           std::uint64_t most_in_memory,
                                                           const std::string& directory) {
  const ByteSource* from = &item;
  std::shared_ptr<const ByteSource> plain;
  for (const std::string& transform : transforms) {
    SpillSink sink(most_in_memory, directory);
    undo(*from, transform, max_bytes, sink);
    plain = sink.take(item.name());
    from = plain.get();
  }
  return plain;
}

std::shared_ptr<const ByteSource> undo_transforms(std::shared_ptr<const ByteSource> item,
                                                  const std::vector<std::string>& transforms,
                                                  std::uint64_t max_bytes) {
  if (transforms.empty()) return item;
  return source_of(undo_transforms_in_memory(*item, transforms, max_bytes), item->name());
}

}  // namespace cairn
