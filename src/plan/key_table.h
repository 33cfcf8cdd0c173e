// Gives 64-bit keys small numbers: equal keys get equal numbers, counted from 0 in order of arrival.
//
// What base/name_table.h is for strings, for millions of keys that are numbers already.
#pragma once

#include <cstdint>
#include <optional>

#include "base/pod_vector.h"

namespace cairn {

class KeyTable {
 public:
  std::uint32_t size() const { return static_cast<std::uint32_t>(keys_.size()); }
  std::uint64_t operator[](std::uint32_t id) const { return keys_[id]; }

  std::uint32_t intern(std::uint64_t key) {
    if (keys_.size() >= slots_.size() / 2) grow();
    const std::size_t at = probe(key);
    if (slots_[at] == kFree) {
      slots_[at] = size();
      keys_.push_back(key);
    }
    return slots_[at];
  }

  std::optional<std::uint32_t> find(std::uint64_t key) const {
    if (slots_.empty()) return std::nullopt;
    const std::uint32_t slot = slots_[probe(key)];
    if (slot == kFree) return std::nullopt;
    return slot;
  }

  void reserve(std::size_t keys) {
    keys_.reserve(keys);
    std::size_t slots = 64;
    while (slots < 2 * keys) slots *= 2;
    if (slots > slots_.size()) rehash(slots);
  }

 private:
  static constexpr std::uint32_t kFree = ~std::uint32_t{0};

  std::size_t probe(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::uint64_t hash = (key ^ (key >> 29)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
    std::size_t at = hash & mask;
    while (slots_[at] != kFree && keys_[slots_[at]] != key) at = (at + 1) & mask;
    return at;
  }

  void grow() { rehash(slots_.empty() ? 64 : 2 * slots_.size()); }

  void rehash(std::size_t slots) {
    slots_.clear();
    slots_.resize(slots, kFree);
    for (std::uint32_t id = 0; id < size(); ++id) slots_[probe(keys_[id])] = id;
  }

  PodVector<std::uint64_t> keys_;
  PodVector<std::uint32_t> slots_;  // at most half of them taken
};

}  // namespace cairn
