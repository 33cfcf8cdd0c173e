// The memo of a pickle: numbered values, with memory only where values were put.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/pod_vector.h"

namespace cairn::pickle {

class Memo {
 public:
  static constexpr std::uint64_t kUnset = ~std::uint64_t{0};
  static constexpr std::uint64_t kPageBytes = 16 * sizeof(std::uint64_t) + sizeof(std::uint32_t);

  // Whether `put` of this number takes no more than there is; kPageBytes else.
  bool has_room_for(std::uint64_t number) const {
    return number / kPage < pages_.size() && pages_[number / kPage] != kNoPage;
  }
  std::uint64_t memory() const { return slots_.size() / kPage * kPageBytes; }

  void put(std::uint64_t number, std::uint64_t value) {
    const std::uint64_t page = number / kPage;
    if (page >= pages_.size()) pages_.resize(page + 1, kNoPage);
    if (pages_[page] == kNoPage) {
      pages_[page] = static_cast<std::uint32_t>(slots_.size() / kPage);
      std::fill_n(slots_.extend(kPage), kPage, kUnset);
    }
    slots_[pages_[page] * kPage + number % kPage] = value;
  }

  std::uint64_t get(std::uint64_t number) const {
    const std::uint64_t page = number / kPage;
    if (page >= pages_.size() || pages_[page] == kNoPage) return kUnset;
    return slots_[pages_[page] * kPage + number % kPage];
  }

 private:
  static constexpr std::uint64_t kPage = 16;
  static constexpr std::uint32_t kNoPage = ~std::uint32_t{0};
  PodVector<std::uint32_t> pages_;  // where in slots_ each sixteen numbers are
  PodVector<std::uint64_t> slots_;
};

}  // namespace cairn::pickle
