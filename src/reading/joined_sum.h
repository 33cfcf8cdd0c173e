// The CRC-32 of a run of bytes whose parts come in any order.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/hash.h"

namespace cairn {

class JoinedSum {
 public:
  // The bytes from `begin` to `end` have this sum. What overlaps with an earlier part is not taken, and the
  // whole is never known then.
  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t crc) {
    auto next = parts_.lower_bound(begin);
    if (next != parts_.end() && next->first < end) return;
    if (next != parts_.begin() && std::prev(next)->second.end > begin) return;
    if (next != parts_.end() && next->first == end) {
      crc = crc32_combine(crc, next->second.crc, next->second.end - end);
      end = next->second.end;
      next = parts_.erase(next);
    }
    if (next != parts_.begin() && std::prev(next)->second.end == begin) {
      Part& before = std::prev(next)->second;
      before = {end, crc32_combine(before.crc, crc, end - begin)};
    } else {
      parts_.emplace_hint(next, begin, Part{end, crc});
    }
  }

  // The sum of all `bytes`, when every part of them has come.
  std::optional<std::uint32_t> whole(std::uint64_t bytes) const {
    if (parts_.size() != 1 || parts_.begin()->first != 0 || parts_.begin()->second.end != bytes)
      return std::nullopt;
    return parts_.begin()->second.crc;
  }

 private:
  struct Part {
    std::uint64_t end = 0;
    std::uint32_t crc = 0;
  };
  std::map<std::uint64_t, Part> parts_;  // by where they begin; none touches the next
};

}  // namespace cairn
