// What a way of moving bytes costs: time, and the processor time of this process alone.
#pragma once

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "measure.h"

namespace cairn {

struct Cost {
  double seconds = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();
};

inline double cpu_seconds() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

// The shortest time and the least processor time of some rounds, which are told their number.
inline Cost least_cost(int rounds, const std::function<void(int)>& work) {
  Cost least;
  for (int i = 0; i < rounds; ++i) {
    const double before = cpu_seconds();
    const double seconds = seconds_of([&] { work(i); });
    least = {std::min(least.seconds, seconds), std::min(least.cpu, cpu_seconds() - before)};
  }
  return least;
}

inline std::string json_of(const Cost& cost) {
  return fmt::format("\"seconds\": {}, \"cpu\": {}", cost.seconds, cost.cpu);
}

}  // namespace cairn
