// What the programs that measure a GPU share: clocks, rows, and a state in the GPU's memory.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cairn/device.h"
#include "cairn/state_dict.h"
#include "device/device_sender.h"

namespace cairn::bench {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 16;
constexpr int kRepetitions = 3;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
inline double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}
inline double best_of(const std::function<void()>& before, const std::function<void()>& work,
                      int times = kRepetitions) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < times; ++i) {
    before();
    best = std::min(best, seconds_of(work));
  }
  return best;
}

// Throws what one of them threw.
inline void in_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::future<void>> threads;
  for (int i = 0; i < count; ++i) threads.push_back(std::async(std::launch::async, work, i));
  for (std::future<void>& thread : threads) thread.wait();
  for (std::future<void>& thread : threads) thread.get();
}

// --- rows ---

struct Row {
  std::string name;
  double cairn;
  std::string unit;
  double limit = 0;
  double target = 0;      // of `cairn`, or of the ratio to the limit
  bool of_limit = false;  // the target is a ratio
  bool higher = false;
  std::string note = {};
};

inline void print(const Row& row) {
  std::string line =
      fmt::format("{{\"name\": \"{}\", \"cairn\": {:.5g}, \"unit\": \"{}\"", row.name, row.cairn, row.unit);
  if (row.limit > 0) line += fmt::format(", \"limit\": {:.5g}", row.limit);
  if (row.of_limit) line += fmt::format(", \"ratio\": {:.4g}", row.cairn / row.limit);
  if (row.target > 0)
    line +=
        fmt::format(", \"target\": {:g}, \"better\": \"{}\"", row.target, row.higher ? "higher" : "lower");
  if (!row.note.empty()) line += fmt::format(", \"note\": \"{}\"", row.note);
  fmt::print("{}}}\n", line);
  std::fflush(stdout);
}

// --- the state ---

inline Tensor on_device(DeviceDriver& driver, DType dtype, const Shape& shape) {
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  const std::shared_ptr<std::byte> memory = driver.allocate(0, view.bytes());
  view.data = memory.get();
  view.device = {Device::Kind::kCuda, 0};
  return {view, memory};
}

struct GpuState {
  StateDict state;
  std::vector<Tensor> tensors;
  std::uint64_t bytes = 0;
};

// Every tensor holds other bytes, made from `seed`.
inline void fill(const std::shared_ptr<DeviceDriver>& driver, const std::vector<Tensor>& tensors,
                 unsigned seed) {
  in_threads(kThreads, [&](int thread) {
    DeviceSender sender(driver, 0, driver->open_stream(0), {});
    for (std::size_t i = static_cast<std::size_t>(thread); i < tensors.size(); i += kThreads) {
      const TensorView& view = tensors[i].view();
      std::mt19937_64 random(seed * 1000003U + i);
      for (std::uint64_t done = 0; done < view.bytes();) {
        const std::uint64_t piece = std::min(sender.most(), view.bytes() - done);
        std::byte* const room = sender.room(piece);
        std::uint64_t word = random();
        for (std::uint64_t at = 0; at < piece;
             at += 8, word = word * 6364136223846793005U + 1442695040888963407U)
          std::memcpy(room + at, &word, std::min<std::uint64_t>(8, piece - at));
        const Shape flat{static_cast<std::int64_t>(piece)};
        TensorView there = TensorView::contiguous(view.data + done, DType::kUInt8, flat);
        there.device = view.device;
        sender.send(TensorView::contiguous(room, DType::kUInt8, flat), there);
        done += piece;
      }
    }
    sender.wait();
  });
}

inline GpuState make_state(const std::shared_ptr<DeviceDriver>& driver, int tensors, double gb) {
  GpuState made;
  Dict model;
  const auto rows = static_cast<std::int64_t>(gb * 1e9 / tensors / 8192);
  for (int i = 0; i < tensors; ++i) {
    made.tensors.push_back(on_device(*driver, DType::kBFloat16, {rows, 4096}));
    made.bytes += made.tensors.back().view().bytes();
    model.set(fmt::format("layer{}.weight", i), Value(made.tensors.back()));
  }
  made.state.set("model", Value(std::move(model)));
  made.state.set("step", Value(1));
  fill(driver, made.tensors, 1);
  return made;
}

}  // namespace cairn::bench
