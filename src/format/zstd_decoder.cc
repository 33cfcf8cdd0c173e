#include "format/zstd_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <vector>

#include "cairn/error.h"

#ifdef CAIRN_HAVE_ZSTD
#include <zstd.h>
#endif

namespace cairn {

#ifdef CAIRN_HAVE_ZSTD

namespace {

constexpr std::uint64_t kPacked = 1U << 20;  // bytes that are read at a time

}  // namespace

struct ZstdDecoder::Stream {
  Stream(const ByteSource& source, std::uint64_t most_bytes)
      : packed(source),
        most(most_bytes),
        context(ZSTD_createDCtx(), ZSTD_freeDCtx),
        buffer(std::min(source.size(), kPacked)) {
    if (context == nullptr) throw std::bad_alloc();
  }

  std::size_t read(std::span<std::byte> to) {
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    while (out.pos < out.size) {
      if (in.pos == in.size) refill();
      const bool all_in = in.pos == in.size;
      if (all_in && more == 0) break;
      const std::size_t before = out.pos;
      more = ZSTD_decompressStream(context.get(), &out, &in);
      check(more);
      if (all_in && out.pos == before)
        throw Error(ErrorCode::kCorrupt, "the zstd stream ends in the middle").at(at);
    }
    if (out.pos > most - put)
      throw Error(ErrorCode::kLimit, fmt::format("a zstd stream that gives more than {} bytes", most));
    put += out.pos;
    return out.pos;
  }

  void refill() {
    const auto bytes = std::span(buffer).first(std::min<std::uint64_t>(packed.size() - at, buffer.size()));
    packed.read_at(at, bytes);
    at += bytes.size();
    in = {buffer.data(), bytes.size(), 0};
  }

  void check(std::size_t result) const {
    if (ZSTD_isError(result) == 0) return;
    throw Error(ErrorCode::kCorrupt, fmt::format("broken zstd stream: {}", ZSTD_getErrorName(result)))
        .at(at - (in.size - in.pos));
  }

  const ByteSource& packed;
  const std::uint64_t most;
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context;
  std::vector<std::byte> buffer;
  ZSTD_inBuffer in{nullptr, 0, 0};
  std::uint64_t at = 0;   // the end of what is in the buffer
  std::uint64_t put = 0;  // bytes that came out
  std::size_t more = 1;   // 0: a frame is complete
};

ZstdDecoder::ZstdDecoder(const ByteSource& packed, std::uint64_t most_bytes)
    : stream_(std::make_unique<Stream>(packed, most_bytes)) {}
std::size_t ZstdDecoder::read(std::span<std::byte> to) { return stream_->read(to); }

#else

struct ZstdDecoder::Stream {};

ZstdDecoder::ZstdDecoder(const ByteSource&, std::uint64_t) {
  throw Error(ErrorCode::kUnsupported, "this build of cairn has no libzstd");
}
std::size_t ZstdDecoder::read(std::span<std::byte>) { return 0; }

#endif

ZstdDecoder::~ZstdDecoder() = default;

}  // namespace cairn
