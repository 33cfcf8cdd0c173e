// What the benchmarks of saving and loading share: states, clocks, and how much memory the process has.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "cairn/state_dict.h"
#include "cairn/tensor.h"

namespace cairn {

inline constexpr std::int64_t kTensorBytes = std::int64_t{32} << 20;
inline constexpr int kRepetitions = 3;

inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Memory that is really there, and not the same everywhere.
inline Tensor filled(std::int64_t bytes) {
  Tensor tensor = Tensor::empty(DType::kFloat32, {bytes / 4});
  auto* words = reinterpret_cast<std::uint32_t*>(tensor.bytes().data());
  for (std::int64_t i = 0; i < bytes / 4; ++i) words[i] = static_cast<std::uint32_t>(i) * 2654435761U;
  return tensor;
}

inline StateDict state_of(std::uint64_t bytes) {
  Dict model;
  for (std::uint64_t at = 0; at < bytes; at += kTensorBytes)
    model.set(fmt::format("w{}", at / kTensorBytes), Value(filled(kTensorBytes)));
  StateDict state;
  state.set("model", Value(std::move(model)));
  return state;
}

inline double best_of(const std::function<void()>& before, const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    before();
    best = std::min(best, seconds_of(work));
  }
  return best;
}

inline std::uint64_t resident(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field))
      return std::strtoull(line.c_str() + std::strlen(field) + 1, nullptr, 10) << 10;
  return 0;
}

inline void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace cairn
