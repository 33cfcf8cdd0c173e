// Gives strings small numbers: equal strings get equal numbers, counted from 0 in order of arrival.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/pod_vector.h"
#include "base/seeded_hash.h"

namespace cairn {

class NameTable {
 public:
  std::uint32_t size() const { return static_cast<std::uint32_t>(ends_.size()); }

  // Views live until the next new name.
  std::string_view operator[](std::uint32_t id) const {
    const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
    return {text_.data() + begin, ends_[id] - begin};
  }

  // Room for so many names without sorting the old ones in anew.
  void reserve(std::size_t names) {
    std::size_t slots = slots_.empty() ? 64 : slots_.size();
    while (slots / 2 < names) slots *= 2;
    if (slots > slots_.size()) rehash(slots);
  }

  std::uint32_t intern(std::string_view name) {
    if (ends_.size() >= slots_.size() / 2) rehash(slots_.empty() ? 64 : 2 * slots_.size());
    const std::uint64_t hash = seeded_hash(name);
    std::uint64_t& slot = slots_[probe(name, hash)];
    if (slot == kFree) {
      text_.append(name);
      ends_.push_back(text_.size());
      slot = (hash & kTag) | (ends_.size() - 1);
    }
    return static_cast<std::uint32_t>(slot);
  }

  std::optional<std::uint32_t> find(std::string_view name) const {
    if (slots_.empty()) return std::nullopt;
    const std::uint64_t slot = slots_[probe(name, seeded_hash(name))];
    if (slot == kFree) return std::nullopt;
    return static_cast<std::uint32_t>(slot);
  }

 private:
  // A slot is the upper half of the hash and the number, or free. At most half of them are taken.
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static constexpr std::uint64_t kTag = ~std::uint64_t{0} << 32;

  std::size_t probe(std::string_view name, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at] != kFree &&
           (((slots_[at] ^ hash) & kTag) != 0 || (*this)[static_cast<std::uint32_t>(slots_[at])] != name)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  void rehash(std::size_t slots) {
    slots_.clear();
    slots_.resize(slots, kFree);
    for (std::uint32_t id = 0; id < size(); ++id) {
      const std::uint64_t hash = seeded_hash((*this)[id]);
      slots_[probe((*this)[id], hash)] = (hash & kTag) | id;
    }
  }

  PodVector<char> text_;
  PodVector<std::uint64_t> ends_;
  PodVector<std::uint64_t> slots_;
};

}  // namespace cairn
