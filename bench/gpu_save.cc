// Saving from a GPU's memory and loading into it, against the machine's own limits in the same run.
//
//   gpu_save [TMPFS_DIR [DISK_DIR [PARTS [GB [simulated]]]]]
//
// PARTS is a comma-separated list of: stage, save, load, loop, memory, tear; "all" by default. The state is
// GB (8.05) of bf16 in 400 tensors, allocated through the driver: no CUDA toolkit is needed to build or to
// run this. "simulated" tries the program itself where there is no GPU; its figures mean nothing. Prints rows
// as bench/run.py describes them. Without a GPU it says so and does nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "cairn/async.h"
#include "gpu/loop.h"
#include "gpu/raw.h"
#include "gpu/state.h"
#include "testing/simulated.h"

namespace {

using namespace cairn;
using namespace cairn::bench;

constexpr int kTensors = 400;

std::shared_ptr<DeviceDriver> driver;
std::string tmpfs_dir = "/dev/shm/cairn-gpu";
std::string disk_dir = "/tmp/cairn-gpu";
std::string parts = "all";
double state_gb = 8.05;

bool wanted(const std::string& part) {
  return parts == "all" || ("," + parts + ",").find("," + part + ",") != std::string::npos;
}

double limit_to_host = 0, limit_on_device = 0;                                        // seconds for the state
double raw_save_tmpfs = 0, raw_save_disk = 0, raw_load_tmpfs = 0, raw_load_disk = 0;  // GB/s

void measure_limits(const GpuState& state) {
  constexpr std::uint64_t kBlock = 256 * kMiB;
  PinnedMemory pinned(driver, 0, kBlock, true);
  const auto memory = driver->allocate(0, kBlock);
  const auto target = driver->allocate(0, kBlock);
  const auto stream = driver->open_stream(0);
  const auto rate = [&](CopyWay way, const std::byte* from, std::byte* to) {
    const double time = best_of([] {},
                                [&] {
                                  for (int i = 0; i < 16; ++i)
                                    stream->begin(way, {.from = from, .to = to, .row = kBlock});
                                  stream->wait(stream->mark());
                                });
    return 16.0 * kBlock / time;  // bytes a second
  };
  const auto bytes = static_cast<double>(state.bytes);
  limit_to_host = bytes / rate(CopyWay::kToHost, memory.get(), pinned.data());
  const double to_device = bytes / rate(CopyWay::kToDevice, pinned.data(), memory.get());
  limit_on_device = bytes / rate(CopyWay::kOnDevice, memory.get(), target.get());
  print({.name = "gpu.limit_d2h",
         .cairn = bytes / 1e9 / limit_to_host,
         .unit = "GB/s",
         .note = fmt::format("{:.4f} s for the state", limit_to_host)});
  print({.name = "gpu.limit_h2d", .cairn = bytes / 1e9 / to_device, .unit = "GB/s"});
  print({.name = "gpu.limit_d2d", .cairn = bytes / 1e9 / limit_on_device, .unit = "GB/s"});
}

// --- staging ---

struct Times {
  double call, staged, done;
};

Times timed_save(AsyncSaver& saver, const GpuState& state, const std::string& id) {
  const auto start = Clock::now();
  const SaveHandle handle = saver.async_save(state.state, id);
  Times times{seconds_since(start), 0, 0};
  handle.wait_staged();
  times.staged = seconds_since(start);
  handle.wait();
  times.done = seconds_since(start);
  return times;
}

AsyncOptions overlapped(const GpuState& state, SnapshotPlace place, Pinning pinning) {
  AsyncOptions options;
  options.mode = StagingMode::kOverlapped;
  options.staging.budget = state.bytes + state.bytes / 100;
  options.staging.place = place;
  options.staging.pinning = pinning;
  options.staging.devices.driver = driver;
  options.save.write.devices.driver = driver;
  options.save.write.durable = false;
  return options;
}

void print_stage(const std::string& name, const Times& times, double limit, double target) {
  print({.name = "gpu.stage_" + name,
         .cairn = times.staged,
         .unit = "s",
         .limit = limit,
         .target = target,
         .note = fmt::format("call {:.2f} ms, written after {:.3f} s", times.call * 1e3, times.done)});
  print({.name = "gpu.call_" + name, .cairn = times.call * 1e3, .unit = "ms", .target = 2});
}

void measure_way(const GpuState& state, const std::string& name, const AsyncOptions& options, double limit,
                 double first_target, double later_target) {
  AsyncSaver saver(options);
  print_stage(name + "_first", timed_save(saver, state, tmpfs_dir + "/stage"), limit, first_target);
  Times best{1e9, 1e9, 1e9};
  for (int i = 0; i < kRepetitions; ++i) {
    const Times times = timed_save(saver, state, tmpfs_dir + "/stage");
    best = {std::min(best.call, times.call), std::min(best.staged, times.staged),
            std::min(best.done, times.done)};
  }
  print_stage(name + "_later", best, limit, later_target);
}

void measure_staging(const GpuState& state) {
  measure_way(state, "host", overlapped(state, SnapshotPlace::kHost, Pinning::kSnapshot), limit_to_host, 0.45,
              0.16);
  {
    AsyncSaver saver(overlapped(state, SnapshotPlace::kHost, Pinning::kSnapshot));
    const double prepared = seconds_of([&] { saver.prepare(state.state); });
    print({.name = "gpu.prepare", .cairn = prepared, .unit = "s"});
    print_stage("host_prepared", timed_save(saver, state, tmpfs_dir + "/stage"), limit_to_host, 0.16);
  }
  measure_way(state, "ring", overlapped(state, SnapshotPlace::kHost, Pinning::kRing), limit_to_host, 0, 0);
  measure_way(state, "device", overlapped(state, SnapshotPlace::kDevice, Pinning::kSnapshot), limit_on_device,
              0.015, 0.015);
  std::filesystem::remove_all(tmpfs_dir + "/stage");
}

// --- saving and loading to completion ---

void measure_saves(const GpuState& state) {
  const double gb = static_cast<double>(state.bytes) / 1e9;
  SaveOptions options;
  options.write.devices.driver = driver;
  const auto rate = [&](const std::string& dir, int times) {
    return gb / best_of([&] { std::filesystem::remove_all(dir + "/ckpt"); },
                        [&] { save(state.state, dir + "/ckpt", options); }, times);
  };
  raw_save_tmpfs = raw_rate(driver, state, tmpfs_dir + "/raw", true, false);
  std::filesystem::remove_all(tmpfs_dir + "/raw");
  print({.name = "gpu.save_tmpfs",
         .cairn = rate(tmpfs_dir, kRepetitions),
         .unit = "GB/s",
         .limit = raw_save_tmpfs,
         .target = 18,
         .higher = true});
  raw_save_disk = raw_rate(driver, state, disk_dir + "/raw", true, true);
  std::filesystem::remove_all(disk_dir + "/raw");
  print({.name = "gpu.save_disk",
         .cairn = rate(disk_dir, 2),
         .unit = "GB/s",
         .limit = raw_save_disk,
         .target = 0.9,
         .of_limit = true,
         .higher = true,
         .note = "durable"});
}

void measure_loads(GpuState& state) {
  const double gb = static_cast<double>(state.bytes) / 1e9;
  SaveOptions saving;
  saving.write.devices.driver = driver;
  LoadOptions loading;
  loading.read.devices.driver = driver;
  const auto rate = [&](const std::string& dir, bool disk, int times) {
    if (!std::filesystem::exists(dir + "/ckpt")) save(state.state, dir + "/ckpt", saving);
    return gb / best_of(
                    [&] {
                      if (disk) drop_caches(dir + "/ckpt");
                    },
                    [&] { load(state.state, dir + "/ckpt", loading); }, times);
  };
  const auto raw = [&](const std::string& dir, bool disk) {
    (void)raw_move(driver, state, dir + "/raw", O_RDWR | O_CREAT, true);
    const double found = raw_rate(driver, state, dir + "/raw", false, disk);
    std::filesystem::remove_all(dir + "/raw");
    return found;
  };
  raw_load_tmpfs = raw(tmpfs_dir, false);
  print({.name = "gpu.load_tmpfs",
         .cairn = rate(tmpfs_dir, false, kRepetitions),
         .unit = "GB/s",
         .limit = raw_load_tmpfs,
         .target = 20,
         .higher = true});
  raw_load_disk = raw(disk_dir, true);
  print({.name = "gpu.load_disk_cold",
         .cairn = rate(disk_dir, true, 2),
         .unit = "GB/s",
         .limit = raw_load_disk,
         .target = 0.9,
         .of_limit = true,
         .higher = true});
}

// --- a training beside it ---

void measure_loop(const GpuState& state) {
  ComputeLoop loop(*driver);
  (void)loop.rate(0.5);
  for (const auto& [name, place] :
       {std::pair("host", SnapshotPlace::kHost), std::pair("device", SnapshotPlace::kDevice)}) {
    AsyncSaver saver(overlapped(state, place, Pinning::kSnapshot));
    saver.async_save(state.state, tmpfs_dir + "/loop").wait();
    const double alone = loop.rate(2);
    int saves = 0;
    // The saves are what is counted; the loop runs beside them, in a thread of its own.
    std::future<double> rate = std::async(std::launch::async, [&] { return loop.rate(4); });
    for (; rate.wait_for(std::chrono::seconds(0)) != std::future_status::ready; ++saves)
      saver.async_save(state.state, tmpfs_dir + "/loop").wait();
    const double beside = rate.get();
    const double again = loop.rate(2);
    const double usual = (alone + again) / 2;
    print({.name = fmt::format("gpu.loop_loss_{}", name),
           .cairn = std::max(0.0, 1 - beside / usual) * 100,
           .unit = "%",
           .target = 3,
           .note = fmt::format("FMA kernels from PTX on the default stream: {:.1f}/s and {:.1f}/s alone, "
                               "{:.1f}/s beside {} saves one after the other",
                               alone, again, beside, saves)});
  }
  std::filesystem::remove_all(tmpfs_dir + "/loop");
}

// --- memory ---

double resident_mib() {
  std::ifstream status("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  status >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) /
         static_cast<double>(kMiB);
}

void measure_memory(const GpuState& state) {
  const AsyncOptions options = overlapped(state, SnapshotPlace::kHost, Pinning::kSnapshot);
  const double before = resident_mib();
  double peak = 0;
  std::vector<double> curve;
  {
    AsyncSaver saver(options);
    const std::jthread watcher([&](const std::stop_token& stop) {
      for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(2)))
        peak = std::max(peak, resident_mib());
    });
    for (int i = 0; i < 50; ++i) {
      saver.async_save(state.state, tmpfs_dir + "/memory").wait();
      curve.push_back(resident_mib() - before);
    }
  }
  std::filesystem::remove_all(tmpfs_dir + "/memory");
  const double budget = static_cast<double>(options.staging.budget) / static_cast<double>(kMiB);
  std::string text;
  for (std::size_t i = 4; i < curve.size(); i += 5) text += fmt::format("{:.1f} ", curve[i]);
  print({.name = "gpu.memory_peak",
         .cairn = peak - before,
         .unit = "MiB",
         .target = budget + 64,
         .note = fmt::format("staging budget {:.0f} MiB; after each fifth of 50 saves: {}", budget, text)});
  print({.name = "gpu.memory_growth",
         .cairn = curve.back() - curve[4],
         .unit = "MiB",
         .target = 8,
         .note = "from the 5th to the 50th save"});
}

// --- nothing is torn ---

Tensor copy_to_host(const TensorView& view) {
  const Tensor made = Tensor::empty(view.dtype, view.shape);
  DeviceReader reader(driver, 0, driver->open_stream(0), {});
  reader.begin(view);
  std::byte* to = made.view().data;
  for (ByteSpan piece = reader.next(); !piece.empty(); piece = reader.next()) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return made;
}

void measure_tearing() {
  constexpr int kSaves = 100;
  std::vector<Tensor> storages;
  StateDict state;
  std::vector<std::pair<std::string, Tensor>> entries;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    state.set(name, Value(tensor));
    entries.emplace_back(name, tensor);
  };
  for (int i = 0; i < 6; ++i) {
    const Tensor w = on_device(*driver, DType::kBFloat16, {700 + i, 4096});
    storages.push_back(w);
    add(fmt::format("w{}", i), w);
    add(fmt::format("rows{}", i), Tensor(w.view().narrow({{i, 0}, {100, 4096}}), w.owner()));
    const Tensor scalar = on_device(*driver, DType::kInt64, {});
    storages.push_back(scalar);
    add(fmt::format("step{}", i), scalar);
    const Tensor wide = on_device(*driver, DType::kFloat32, {900, 1100});
    storages.push_back(wide);
    add(fmt::format("columns{}", i), Tensor(wide.view().narrow({{0, 3}, {900, 700}}), wide.owner()));
    add(fmt::format("thin{}", i), Tensor(wide.view().narrow({{0, 9}, {900, 2}}), wide.owner()));
  }
  std::vector<std::unique_ptr<AsyncSaver>> savers;
  for (int way = 0; way < 4; ++way) {
    AsyncOptions options;
    options.mode = way % 2 == 0 ? StagingMode::kBlocking : StagingMode::kOverlapped;
    options.staging.devices.driver = options.save.write.devices.driver = driver;
    options.staging.place = way < 2 ? SnapshotPlace::kHost : SnapshotPlace::kDevice;
    options.save.write.durable = false;
    savers.push_back(std::make_unique<AsyncSaver>(options));
  }
  int wrong = 0;
  for (int i = 0; i < kSaves; ++i) {
    fill(driver, storages, static_cast<unsigned>(i));
    std::vector<Tensor> expected;
    for (const auto& [name, tensor] : entries) expected.push_back(copy_to_host(tensor.view()));
    AsyncSaver& saver = *savers[static_cast<std::size_t>(i % 4)];
    const std::string id = fmt::format("{}/tear{}", tmpfs_dir, i % 2);
    const SaveHandle handle = saver.async_save(state, id);
    {
      const StepGuard guard = handle.guard();  // waits in overlapped mode only
      fill(driver, storages, static_cast<unsigned>(i + 100000));
    }
    handle.wait();
    const StateDict loaded = load_into_new(id);
    for (std::size_t j = 0; j < entries.size(); ++j)
      wrong += *loaded.find(entries[j].first) == Value(expected[j]) ? 0 : 1;
  }
  print({.name = "gpu.torn",
         .cairn = static_cast<double>(wrong),
         .unit = "tensors",
         .target = 0.5,
         .note =
             fmt::format("{} saves, {} tensors each, overwritten as soon as allowed, compared byte for byte",
                         kSaves, entries.size())});
  for (int i = 0; i < 2; ++i) std::filesystem::remove_all(fmt::format("{}/tear{}", tmpfs_dir, i));
}

void run() {
  std::filesystem::create_directories(tmpfs_dir);
  std::filesystem::create_directories(disk_dir);
  const auto part = [](const char* name, const std::function<void()>& work) {
    if (!wanted(name)) return;
    try {
      work();
    } catch (const std::exception& e) {
      fmt::print("gpu_save: {}: {}\n", name, e.what());
    }
  };
  part("memory", [] { measure_memory(make_state(driver, 50, std::min(1.0, state_gb))); });
  part("tear", [] { measure_tearing(); });
  GpuState state = make_state(driver, kTensors, state_gb);
  measure_limits(state);
  part("stage", [&] { measure_staging(state); });
  part("save", [&] { measure_saves(state); });
  part("load", [&] { measure_loads(state); });
  std::filesystem::remove_all(tmpfs_dir + "/ckpt");
  part("loop", [&] { measure_loop(state); });
  std::filesystem::remove_all(tmpfs_dir);
  std::filesystem::remove_all(disk_dir);
}

}  // namespace

int main(int count, char** arguments) {
  const char* only = std::getenv("CAIRN_BENCH_ONLY");
  if (only != nullptr && std::string("gpu.").rfind(std::string(only).substr(0, 4), 0) != 0) return 0;
  // In a folder of their own: it is removed at the end.
  if (count > 1) tmpfs_dir = std::string(arguments[1]) + "/cairn-gpu";
  if (count > 2) disk_dir = std::string(arguments[2]) + "/cairn-gpu";
  if (count > 3) parts = arguments[3];
  if (count > 4) state_gb = std::atof(arguments[4]);
  try {
    const bool simulated = count > 5 && std::string(arguments[5]) == "simulated";
    driver = simulated ? std::make_shared<SimulatedDriver>(SimulatedOptions{.memory = 16384 * kMiB})
                       : cuda_driver();
  } catch (const Error& e) {
    fmt::print("gpu_save: skipped: {}\n", e.what());
    return 0;
  }
  try {
    run();
  } catch (const std::exception& e) {
    fmt::print("gpu_save: {}\n", e.what());
    return 1;
  }
  driver.reset();
  return 0;
}
