#include "format/zstd_sink.h"

#include <fmt/format.h>

#include <new>
#include <vector>

#include "cairn/error.h"

#ifdef CAIRN_HAVE_ZSTD
#include <zstd.h>
#endif

namespace cairn {

#ifdef CAIRN_HAVE_ZSTD

struct ZstdSink::Stream {
  explicit Stream(ByteSink& sink) : to(sink), context(ZSTD_createCCtx()), out(ZSTD_CStreamOutSize()) {
    if (context == nullptr) throw std::bad_alloc();
  }
  ~Stream() { ZSTD_freeCCtx(context); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void compress(ByteSpan bytes, ZSTD_EndDirective mode) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer piece{out.data(), out.size(), 0};
      const std::size_t left = ZSTD_compressStream2(context, &piece, &in, mode);
      if (ZSTD_isError(left) != 0)
        throw Error(ErrorCode::kInternal, fmt::format("zstd: {}", ZSTD_getErrorName(left)));
      to.append({out.data(), piece.pos});
      if (mode == ZSTD_e_end ? left == 0 : in.pos == in.size) return;
    }
  }

  ByteSink& to;
  ZSTD_CCtx* context;
  std::vector<std::byte> out;
};

bool zstd_is_built_in() { return true; }
ZstdSink::ZstdSink(ByteSink& to) : stream_(std::make_unique<Stream>(to)) {}
void ZstdSink::append(ByteSpan bytes) { stream_->compress(bytes, ZSTD_e_continue); }
void ZstdSink::finish() { stream_->compress({}, ZSTD_e_end); }

#else

struct ZstdSink::Stream {};

bool zstd_is_built_in() { return false; }
ZstdSink::ZstdSink(ByteSink&) { throw Error(ErrorCode::kUnsupported, "this build of cairn has no libzstd"); }
void ZstdSink::append(ByteSpan) {}
void ZstdSink::finish() {}

#endif

ZstdSink::~ZstdSink() = default;

}  // namespace cairn
