// Takes values straight from a pickle's program, for Reducer::recognize.
//
// Each function reads one small pattern at the current place and moves behind it, or returns false. FRAME
// opcodes are stepped over wherever CPython may put them. kRoom bytes from the place on can be read (past the
// end of the program they are zeros, which match nothing); whoever reads more in one object asks again.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "format/pickle.h"
#include "format/pickle_ops.h"

namespace cairn::pickle {

// A stretch of program that recurs: only literal opcodes and memo fetches, so equal bytes mean the same.
struct Pattern {
  static constexpr std::size_t kLongest = 64;
  std::array<std::byte, kLongest + 8> bytes{};
  std::uint8_t length = 0;    // 0: nothing learned yet
  std::uint8_t memoized = 0;  // MEMOIZE opcodes in it
};

class Cursor {
 public:
  // What the cursor needs of the machine it runs in.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void bring(const std::byte* p, std::uint64_t bytes) = 0;
    virtual Ref recall(std::uint64_t number) = 0;  // throws when there is none
    // Where the frame ends whose FRAME is at `p`; null when it is too long.
    virtual const std::byte* frame_end(const std::byte* p) = 0;
  };

  static constexpr std::uint64_t kRoom = 1024;

  Cursor(Host& host, const std::byte* p, std::uint64_t memo_count, const std::byte* frame_end)
      : host_(host),
        start_(p),
        p_(p),
        frame_end_(frame_end),
        first_number_(memo_count),
        memo_count_(memo_count) {
    make_room();
  }

  // Makes kRoom more bytes readable from here.
  void make_room() { host_.bring(p_, kRoom); }

  // Exactly these bytes. `memoized` says how many of them are MEMOIZE.
  bool literal(std::string_view bytes, unsigned memoized = 0) {
    return take(bytes.data(), bytes.size(), memoized) ||
           (step_over_frame() && take(bytes.data(), bytes.size(), memoized));
  }

  // The pattern's bytes.
  bool match(const Pattern& pattern) {
    if (pattern.length == 0) return false;
    const std::byte* p = p_;
    const std::byte* q = pattern.bytes.data();
    std::size_t left = pattern.length;
    for (; left >= 8; left -= 8, p += 8, q += 8)
      if (load<std::uint64_t>(p) != load<std::uint64_t>(q)) return false;
    if (left > 0 && (load<std::uint64_t>(p) ^ load<std::uint64_t>(q)) << (64 - 8 * left) != 0) return false;
    p_ += pattern.length;
    memo_count_ += pattern.memoized;
    return true;
  }

  // Notes what was read since `start` as a pattern, if it is short enough and has no FRAME in it.
  void learn(Pattern& pattern, const std::byte* start, std::uint64_t memo_count) const {
    const auto length = static_cast<std::size_t>(p_ - start);
    if (length > Pattern::kLongest || frame_at_ >= start) return;
    std::memcpy(pattern.bytes.data(), start, length);
    pattern.length = static_cast<std::uint8_t>(length);
    pattern.memoized = static_cast<std::uint8_t>(memo_count_ - memo_count);
  }

  bool peek(std::uint8_t op) {
    step_over_frame();
    return static_cast<std::uint8_t>(*p_) == op;
  }

  // A memo fetch: its number.
  bool fetch(std::uint64_t& number) {
    step_over_frame();
    if (*p_ == std::byte{kBinGet}) {
      number = load<std::uint8_t>(p_ + 1);
      p_ += 2;
      return true;
    }
    if (*p_ != std::byte{kLongBinGet}) return false;
    number = load<std::uint32_t>(p_ + 1);
    p_ += 5;
    return true;
  }

  bool integer(std::int64_t& value) {
    switch (static_cast<std::uint8_t>(*p_)) {
      case kBinInt1:
        value = load<std::uint8_t>(p_ + 1);
        p_ += 2;
        return true;
      case kBinInt2:
        value = load<std::uint16_t>(p_ + 1);
        p_ += 3;
        return true;
      case kBinInt:
        value = load<std::int32_t>(p_ + 1);
        p_ += 5;
        return true;
      case kLong1: return long_integer(value);
      default: return step_over_frame() && integer(value);
    }
  }

  // A string: written here (and memoised), or fetched from the memo. The view lives until the next call.
  bool string(const Graph& graph, std::string_view& text);

  const std::byte* place() const { return p_; }
  const std::byte* frame_end() const { return frame_end_; }  // of the last frame met
  std::uint64_t memo_count() const { return memo_count_; }
  // A number that was given since the cursor began is in no memo yet: None, which nobody takes for what they
  // look for, so that the machine reads the object its own way.
  Ref recall(std::uint64_t number) { return number < first_number_ ? host_.recall(number) : Ref{}; }

 private:
  bool take(const void* bytes, std::size_t length, unsigned memoized) {
    if (std::memcmp(p_, bytes, length) != 0) return false;
    p_ += length;
    memo_count_ += memoized;
    return true;
  }
  bool step_over_frame() {
    if (*p_ != std::byte{kFrame}) return false;
    if (frame_end_ > start_ && frame_end_ != p_) return false;  // not where CPython begins one
    const std::byte* const end = host_.frame_end(p_);
    if (end == nullptr) return false;
    frame_at_ = p_;
    frame_end_ = end;
    p_ += 9;
    return *p_ != std::byte{kFrame};
  }
  bool long_integer(std::int64_t& value) {
    const auto length = load<std::uint8_t>(p_ + 1);
    if (length == 0 || length > 8) return false;
    const std::uint64_t bits = load<std::uint64_t>(p_ + 2) << (64 - 8 * length);
    value = static_cast<std::int64_t>(bits) >> (64 - 8 * length);
    p_ += 2 + length;
    return true;
  }

  Host& host_;
  const std::byte* const start_;
  const std::byte* p_;
  const std::byte* frame_end_;
  const std::byte* frame_at_ = nullptr;  // the last FRAME stepped over
  std::uint64_t first_number_;
  std::uint64_t memo_count_;
};

}  // namespace cairn::pickle
