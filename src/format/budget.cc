#include "format/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "cairn/error.h"

namespace cairn {

// The bytes of the file are in memory as well, once or twice; and half of the base is for what nobody counts.
Budget::Budget(std::uint64_t file_bytes, const Limits& limits)
    : base_(limits.memory_base),
      per_byte_(limits.memory_per_byte),
      left_(base_ / 2 + (per_byte_ - std::min<std::uint64_t>(per_byte_, 2)) * file_bytes),
      visits_left_(4 * file_bytes + 16) {}

void Budget::refuse() const {
  if (per_byte_ == 0)
    throw Error(ErrorCode::kLimit,
                fmt::format("the object takes more memory than the {} MiB allowed", base_ >> 21));
  throw Error(ErrorCode::kLimit,
              fmt::format("what the file describes takes more memory than {} MiB and {} times its size",
                          base_ >> 20, per_byte_));
}

void Budget::refuse_visit() {
  throw Error(ErrorCode::kLimit, "an object that unfolds to far more than was stored");
}

std::uint64_t heap_bytes(const List& items) {
  std::uint64_t bytes = block_bytes(items.size() * sizeof(Value));
  for (const Value& item : items) bytes += heap_bytes(item);
  return bytes;
}

std::uint64_t dict_bytes(std::uint64_t entries) {
  if (entries == 0) return 0;
  constexpr std::uint64_t kFrame = block_bytes(2 * sizeof(std::vector<int>));
  constexpr std::uint64_t kScanned = 16;  // beyond, there is a table of slots as well
  return kFrame + block_bytes(entries * sizeof(std::pair<Key, Value>)) +
         (entries > kScanned ? block_bytes(4 * std::bit_ceil(4 * entries)) : 0);
}

std::uint64_t heap_bytes(const Dict& dict) {
  std::uint64_t bytes = dict_bytes(dict.size());
  for (const auto& [key, value] : dict) {
    if (const auto* name = std::get_if<std::string>(&key)) bytes += text_bytes(*name);
    bytes += heap_bytes(value);
  }
  return bytes;
}

std::uint64_t heap_bytes(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return text_bytes(*text);
  if (const auto* bytes = value.get_if<Bytes>()) return text_bytes(bytes->data);
  if (const auto* number = value.get_if<BigInt>()) return text_bytes(number->twos_complement);
  if (const auto* list = value.get_if<List>()) return heap_bytes(*list);
  if (const auto* tuple = value.get_if<Tuple>()) return heap_bytes(tuple->items);
  if (const auto* dict = value.get_if<Dict>()) return heap_bytes(*dict);
  if (const auto* opaque = value.get_if<Opaque>())
    return block_bytes(sizeof(Opaque)) + text_bytes(opaque->class_name) + text_bytes(opaque->pickle);
  return 0;
}

}  // namespace cairn
