// How much memory the values of one file may take.
//
// A pickle can name one long string a million times, or one list inside a thousand objects: a small file
// that unfolds to a large state. Whoever makes values from a file takes their bytes from its Budget first.
//
//   Budget budget(source.size(), limits);
//   budget.take(text_bytes(name));  // Error kLimit once there is nothing left
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "cairn/limits.h"
#include "cairn/state_dict.h"

namespace cairn {

class Budget {
 public:
  Budget(std::uint64_t file_bytes, const Limits& limits);

  bool try_take(std::uint64_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }
  void take(std::uint64_t bytes) {
    if (!try_take(bytes)) refuse();
  }
  // `count` parts of so many bytes each; asked before there is memory for them.
  void take(std::uint64_t count, std::uint64_t bytes) {
    if (count > left_ / bytes) refuse();
    left_ -= count * bytes;
  }
  void give_back(std::uint64_t bytes) { left_ += bytes; }

  // Parts of a graph that are looked at, over all walks through it.
  void take_visit() {
    if (visits_left_-- == 0) refuse_visit();
  }

  [[noreturn]] void refuse() const;

 private:
  [[noreturn]] static void refuse_visit();

  std::uint64_t base_, per_byte_;
  std::uint64_t left_;
  std::uint64_t visits_left_;
};

// What malloc takes for so many bytes.
constexpr std::uint64_t block_bytes(std::uint64_t bytes) {
  return bytes == 0 ? 0 : bytes <= 24 ? 32 : (bytes + 8 + 15) / 16 * 16;
}

// Memory that a value has beside its own size.
inline std::uint64_t text_bytes(std::string_view text) {
  return text.size() <= 15 ? 0 : block_bytes(text.size() + 1);
}
inline std::uint64_t heap_bytes_of_rank(std::uint64_t rank) {  // a Shape
  return rank <= 3 ? 0 : block_bytes(rank * sizeof(std::int64_t));
}
inline std::uint64_t heap_bytes(const Shape& shape) { return heap_bytes_of_rank(shape.rank()); }
std::uint64_t heap_bytes(const Value& value);
std::uint64_t heap_bytes(const List& items);
std::uint64_t heap_bytes(const Dict& dict);

// Memory for the entries of a dict, without what keys and values have beside their own size.
std::uint64_t dict_bytes(std::uint64_t entries);

}  // namespace cairn
