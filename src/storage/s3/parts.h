// Where an object is cut into parts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace cairn::s3 {

inline constexpr std::uint64_t kLeastPart = std::uint64_t{8} << 20;
inline constexpr int kMostParts = 10000;

struct PartPlace {
  int number = 0;  // from 1
  std::uint64_t begin = 0, end = 0;
};

// Parts of one size where it is known how large the object will be; otherwise of 8 MiB, twice as much after
// every thousand of them, so that 10,000 do for whatever comes.
class Cuts {
 public:
  explicit Cuts(std::uint64_t size) {
    if (size == 0) return;
    // Many parts are under way at once, and each may be a copy in memory.
    constexpr std::uint64_t kMost = std::uint64_t{64} << 20, kWanted = 256;
    size_ = std::clamp(size / kWanted, kLeastPart, kMost);
    if (size / size_ >= kMostParts) size_ = size / (kMostParts - 1) + 1;
    size_ = (size_ + kLeastPart - 1) / kLeastPart * kLeastPart;
  }

  PartPlace at(std::uint64_t offset) const {
    std::uint64_t begin = 0, step = kLeastPart;
    int first = 1;
    if (size_ != 0) {
      step = size_;
    } else {
      while (offset - begin >= step * kStep) begin += step * kStep, step *= 2, first += kStep;
    }
    const std::uint64_t skipped = (offset - begin) / step;
    begin += skipped * step;
    return {first + static_cast<int>(skipped), begin, begin + step};
  }

 private:
  static constexpr int kStep = 1000;
  std::uint64_t size_ = 0;  // of each part; 0: they grow
};

// Which bytes are there already.
class Covered {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    auto at = runs_.upper_bound(begin);
    if (at != runs_.begin() && std::prev(at)->second >= begin) --at;
    while (at != runs_.end() && at->first <= end) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = runs_.erase(at);
    }
    runs_[begin] = end;
  }
  bool all(std::uint64_t begin, std::uint64_t end) const {
    return runs_.size() == 1 && runs_.begin()->first <= begin && runs_.begin()->second >= end;
  }
  const std::map<std::uint64_t, std::uint64_t>& runs() const { return runs_; }  // from begin to end

 private:
  std::map<std::uint64_t, std::uint64_t> runs_;  // apart from each other
};

}  // namespace cairn::s3
