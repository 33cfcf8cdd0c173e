// Growing and reading messages: numbers, varints, plain values. All reads are bounded.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "cairn/error.h"
#include "cairn/state_dict.h"

namespace cairn {

template <class T> void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_value(std::string& out, const Value& value);  // Error(kUnsupported) for tensors and the like

// Reads a message from front to back.
class WireReader {
 public:
  explicit WireReader(ByteSpan bytes) : bytes_(bytes) {}

  std::size_t left() const { return bytes_.size() - at_; }
  std::size_t at() const { return at_; }

  ByteSpan take(std::uint64_t count) {
    if (count > left()) fail("ends too early");
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  template <class T> T get() { return load<T>(take(sizeof(T)).data()); }
  std::string_view text(std::uint64_t count) { return as_text(take(count)); }
  std::uint64_t varint();
  Value value(int depth = 0);
  void finish() const {
    if (left() != 0) fail("has bytes after its end");
  }

  [[noreturn]] void fail(const char* why) const {
    throw Error(ErrorCode::kCorrupt, std::string("a message between ranks ") + why).at(at_);
  }

 private:
  ByteSpan bytes_;
  std::size_t at_ = 0;
};

}  // namespace cairn
