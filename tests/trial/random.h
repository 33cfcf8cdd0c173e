// Numbers that a seed fixes: the same on every machine, and as cheap as a multiplication.
#pragma once

#include <cstdint>

namespace cairn::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  // 0 … count - 1; count is at least 1.
  std::uint64_t below(std::uint64_t count) { return next() % count; }
  int between(int least, int most) {
    return least + static_cast<int>(below(static_cast<std::uint64_t>(most - least) + 1));
  }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }
  // Another stream of numbers, so that more draws in one place change nothing in another.
  Random fork() { return Random(next()); }

 private:
  std::uint64_t state_;
};

}  // namespace cairn::sim
