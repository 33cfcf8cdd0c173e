// Names that come from files: duplicates among many, and paths that must stay inside a directory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "base/pod_vector.h"

namespace cairn {

// Sorts numbers by their upper 32 bits; the order among equal ones is kept.
void sort_by_upper_half(PodVector<std::uint64_t>& numbers);

// Finds a name that occurs twice among name_at(0) ... name_at(count - 1), and returns the position of one
// of its occurrences. At worst count x log count comparisons, also for names chosen to collide.
// `count` is below 2^32.
template <class NameAt> std::optional<std::size_t> find_duplicate(std::size_t count, NameAt name_at) {
  const auto name = [&](std::uint64_t position) { return std::string_view(name_at(position & 0xffffffffU)); };
  constexpr std::size_t kFew = 12;  // up to here comparing all pairs is cheaper than hashing
  if (count <= kFew) {
    for (std::size_t i = 1; i < count; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (name(i) == name(j)) return i;
      }
    }
    return std::nullopt;
  }
  PodVector<std::uint64_t> sorted;  // hash in the upper half, position in the lower
  sorted.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    sorted.push_back((std::hash<std::string_view>()(name(i)) & ~std::uint64_t{0xffffffffU}) | i);
  }
  sort_by_upper_half(sorted);
  // Equal names have equal hashes; in a run of those the names decide.
  for (std::uint64_t* first = sorted.begin(); first != sorted.end();) {
    std::uint64_t* last = first + 1;
    while (last != sorted.end() && (*last >> 32) == (*first >> 32)) ++last;
    if (last - first > 1) {
      std::sort(first, last, [&](std::uint64_t a, std::uint64_t b) { return name(a) < name(b); });
      const auto equal = [&](std::uint64_t a, std::uint64_t b) { return name(a) == name(b); };
      const auto* twice = std::adjacent_find(first, last, equal);
      if (twice != last) return *twice & 0xffffffffU;
    }
    first = last;
  }
  return std::nullopt;
}

// What keeps `path` from being a plain relative path of named parts; nullptr when nothing does. Empty
// parts, "." and ".." are refused: each file has one spelling, and none lies outside.
const char* find_path_problem(std::string_view path);

}  // namespace cairn
