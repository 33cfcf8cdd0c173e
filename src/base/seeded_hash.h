// Hashing for tables that are filled from files: with numbers drawn anew in every process, so that nobody
// can write a file whose names all fall into one slot.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/bytes.h"

namespace cairn {

struct HashSeed {
  std::uint64_t start;
  std::uint64_t factor;  // odd
};
extern const HashSeed kHashSeed;

// The two halves of a 128-bit product, folded: each bit of the result depends on all bits of `value`.
inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(hash ^ value) * kHashSeed.factor;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Eight bytes a step: names are short.
inline std::uint64_t seeded_hash(std::string_view text) {
  std::uint64_t hash = kHashSeed.start ^ text.size();
  const char* p = text.data();
  std::size_t left = text.size();
  for (; left >= 8; p += 8, left -= 8) hash = mix_hash(hash, load<std::uint64_t>(p));
  std::uint64_t tail = 0;
  std::memcpy(&tail, p, left);
  return mix_hash(mix_hash(hash, tail), kHashSeed.start);
}

// By names: std::string or std::string_view.
struct NameHash {
  std::size_t operator()(std::string_view name) const { return seeded_hash(name); }
};
template <class Name, class T> using MapByName = std::unordered_map<Name, T, NameHash>;
template <class Name> using SetOfNames = std::unordered_set<Name, NameHash>;

}  // namespace cairn
