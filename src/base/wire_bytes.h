// Growing and reading messages: numbers and varints. All reads are bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "cairn/error.h"

namespace cairn {

inline void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

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
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = get<std::uint8_t>();
      const std::uint64_t bits = byte & 0x7f;
      if (shift == 63 && bits > 1) break;
      value |= bits << shift;
      if (byte < 0x80) {
        if (byte == 0 && shift > 0) break;  // one spelling per number
        return value;
      }
    }
    fail("has a number that is not well formed");
  }
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

// Several messages as one.
inline std::string pack(const std::vector<std::string>& parts) {
  std::string packed;
  put_varint(packed, parts.size());
  for (const std::string& part : parts) {
    put_varint(packed, part.size());
    packed += part;
  }
  return packed;
}

inline std::vector<std::string> unpack(std::string_view packed) {
  WireReader in(as_bytes(packed));
  std::vector<std::string> parts;
  for (std::uint64_t left = in.varint(); left > 0; --left) parts.emplace_back(in.text(in.varint()));
  in.finish();
  return parts;
}

}  // namespace cairn
