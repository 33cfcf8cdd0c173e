#include "engine/transforms.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cairn/error.h"

#ifdef CAIRN_HAVE_ZSTD
#include <zstd.h>
#endif

namespace cairn {
namespace {

[[maybe_unused]] constexpr std::string_view kZstd = "stream.zstd/1";

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

void check_zstd(std::size_t result, std::uint64_t at) {
  if (ZSTD_isError(result) == 0) return;
  throw Error(ErrorCode::kCorrupt, fmt::format("broken zstd stream: {}", ZSTD_getErrorName(result))).at(at);
}

// The output grows as bytes really come out, so a stream that promises much costs nothing.
std::string unzstd(const ByteSource& item, std::uint64_t max_bytes) {
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (context == nullptr) throw std::bad_alloc();
  std::string all;
  std::vector<std::byte> in(std::min<std::uint64_t>(item.size(), 1 << 20));
  std::vector<std::byte> out(ZSTD_DStreamOutSize());
  std::size_t more = 1;  // 0: a frame is complete
  for (std::uint64_t at = 0; at < item.size();) {
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(item.size() - at, in.size()));
    item.read_at(at, std::span(in).first(piece));
    ZSTD_inBuffer from{in.data(), piece, 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    do {
      to.pos = 0;
      more = ZSTD_decompressStream(context.get(), &to, &from);
      check_zstd(more, at + from.pos);
      if (to.pos > max_bytes - all.size()) {
        throw Error(ErrorCode::kLimit, fmt::format("a zstd stream that gives more than {} bytes", max_bytes));
      }
      all.append(reinterpret_cast<const char*>(out.data()), to.pos);
    } while (from.pos < from.size || (to.pos == to.size && more != 0));
    at += piece;
  }
  if (more != 0) throw Error(ErrorCode::kCorrupt, "the zstd stream ends in the middle").at(item.size());
  return all;
}

#endif

}  // namespace

std::string undo_transforms_in_memory(const ByteSource& item, const std::vector<std::string>& transforms,
                                      [[maybe_unused]] std::uint64_t max_bytes) {
  std::string bytes;
  const ByteSource* from = &item;
  std::shared_ptr<const ByteSource> between;
  for (const std::string& transform : transforms) {
#ifdef CAIRN_HAVE_ZSTD
    if (transform == kZstd) {
      std::string plain = unzstd(*from, max_bytes);
      bytes = std::move(plain);
      between = memory_source(as_bytes(bytes), item.name());
      from = between.get();
      continue;
    }
    const std::string_view known = kZstd;
#else
    const std::string_view known = "none, in this build without libzstd";
#endif
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the item went through the transform '{}'; known are: {}",
                            transform.substr(0, 256), known));
  }
  return transforms.empty() ? read_all(item) : bytes;
}

std::shared_ptr<const ByteSource> undo_transforms(std::shared_ptr<const ByteSource> item,
                                                  const std::vector<std::string>& transforms,
                                                  std::uint64_t max_bytes) {
  if (transforms.empty()) return item;
  return source_of(undo_transforms_in_memory(*item, transforms, max_bytes), item->name());
}

}  // namespace cairn
