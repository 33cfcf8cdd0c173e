// Where writers write to: bytes one after another. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace cairn {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void append(ByteSpan bytes) = 0;
};

class StringSink final : public ByteSink {
 public:
  void append(ByteSpan bytes) override { text.append(as_text(bytes)); }
  std::string text;
};

}  // namespace cairn
