// Compresses what is appended, as DCP's ZStandard extension does: one frame per item, default level.
#pragma once

#include <memory>

#include "base/sink.h"

namespace cairn {

bool zstd_is_built_in();

// Borrows the sink it writes to. Error(kUnsupported) in a build without libzstd.
class ZstdSink final : public ByteSink {
 public:
  explicit ZstdSink(ByteSink& to);
  ~ZstdSink() override;

  void append(ByteSpan bytes) override;
  void finish();  // ends the frame; call once, last

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace cairn
