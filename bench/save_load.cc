// Saving and loading against the machine's own limit. bench/parts/save_load.py calls it and adds stock
// PyTorch.
//
//   save_load raw-write DIR BYTES      the same bytes with no format
//   save_load raw-read DIR BYTES       the same; reads start cold
//   save_load save DIR BYTES [nosums]  one rank, durable; prints the best of three
//   save_load load DIR BYTES [nosums]  what `save` left in DIR, cold
//   save_load small DIR COUNT          COUNT tensors of 4 KiB: save, then load
//   save_load reshard DIR              bytes read for bytes needed: 8 ranks to 6, 4 x 2 to 3
//   save_load coordination DIR         bytes between a rank and the coordinator
//   save_load memory DIR GIB [one]     most memory beyond the state: save, load, verify
//   save_load flat DIR                 growth of resident memory over 50 saves
//
// Each prints one JSON object. Without arguments it prints nothing.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/cairn.h"
#include "cairn/layout.h"
#include "cairn/verify.h"
#include "measure.h"
#include "measure/raw_limit.h"
#include "storage/page_cache.h"

namespace {

using namespace cairn;

void print(double seconds) { fmt::print("{{\"seconds\": {}}}\n", seconds); }

void run_save(const std::string& dir, std::uint64_t bytes, bool sums) {
  const StateDict state = state_of(bytes);
  SaveOptions options;
  options.write.checksums = sums;
  print(best_of([&] { std::filesystem::remove_all(dir + "/ckpt"); },
                [&] { save(state, dir + "/ckpt", options); }));
}

void run_load(const std::string& dir, std::uint64_t bytes, bool sums) {
  StateDict state = state_of(bytes);
  LoadOptions options;
  options.read.verify = sums ? Verify::kUsual : Verify::kNone;
  print(best_of([&] { forget_cached(dir + "/ckpt"); }, [&] { load(state, dir + "/ckpt", options); }));
}

void run_small(const std::string& dir, std::int64_t count) {
  Dict model;
  for (std::int64_t i = 0; i < count; ++i) model.set(fmt::format("w{}", i), Value(filled(4096)));
  StateDict state;
  state.set("model", Value(std::move(model)));
  const double saving =
      best_of([&] { std::filesystem::remove_all(dir + "/small"); }, [&] { save(state, dir + "/small"); });
  const double loading = best_of([] {}, [&] { load(state, dir + "/small"); });
  fmt::print("{{\"save\": {}, \"load\": {}}}\n", saving, loading);
}

// One rank's part of 32 tensors, cut by `layout`.
StateDict part(const MeshLayout& layout, int rank) {
  StateDict state;
  for (int i = 0; i < 32; ++i) {
    const Shape shape{1536, 2048};
    const Box box = layout.box(shape, rank);
    const Tensor mine = Tensor::zeros(DType::kFloat32, box.sizes);
    state.set(fmt::format("w{}", i), Value(layout.shard(mine, shape, rank)));
  }
  return state;
}

double over_read(const std::string& dir, int from, const MeshLayout& saved, int to,
                 const MeshLayout& wanted) {
  std::filesystem::remove_all(dir);
  run_ranks(from, [&](Group& group) { save(part(saved, group.rank()), dir, {.group = &group}); });
  std::vector<ReadReport> reports(static_cast<std::size_t>(to));
  run_ranks(to, [&](Group& group) {
    StateDict state = part(wanted, group.rank());
    reports[static_cast<std::size_t>(group.rank())] = load(state, dir, {.group = &group}).read;
  });
  double read = 0, needed = 0;
  for (const ReadReport& report : reports) {
    read += static_cast<double>(report.read);
    needed += static_cast<double>(report.needed);
  }
  return read / needed;
}

void run_reshard(const std::string& dir) {
  const auto rows = [](int n) { return MeshLayout{{{n}}, {Placement::shard(0)}}; };
  const MeshLayout grid{{{4, 2}}, {Placement::shard(0), Placement::shard(1)}};
  fmt::print("{{\"8_to_6\": {}, \"4x2_to_3\": {}}}\n", over_read(dir + "/a", 8, rows(8), 6, rows(6)),
             over_read(dir + "/b", 8, grid, 3, rows(3)));
}

// Bytes that a rank exchanges with the coordinator: for a new plan, and for the same plan again.
void run_coordination(const std::string& dir) {
  const MeshLayout rows{{8}, {Placement::shard(0)}};
  std::uint64_t first = 0, again = 0;
  run_ranks(8, [&](Group& group) {
    SavePlannerOptions planning;
    planning.enable_plan_caching = true;
    DefaultSavePlanner planner(planning);
    const StateDict state = part(rows, group.rank());
    const SaveOptions options{.group = &group, .planner = &planner};
    const std::uint64_t new_plan = save(state, dir + "/c", options).plan_bytes;
    const std::uint64_t same_plan = save(state, dir + "/c", options).plan_bytes;
    if (group.rank() != 7) return;
    first = new_plan;
    again = same_plan;
  });
  fmt::print("{{\"first\": {}, \"again\": {}}}\n", first, again);
}

void run_memory(const std::string& dir, std::uint64_t gib, bool one_tensor) {
  StateDict state;
  if (one_tensor) {
    state.set("w", Value(filled(static_cast<std::int64_t>(gib << 30))));
  } else {
    state = state_of(gib << 30);
  }
  const auto beyond = [&](const std::function<void()>& work) {
    const std::uint64_t before = resident("VmRSS:");
    reset_peak();
    work();
    return (resident("VmHWM:") - before) >> 20;
  };
  const std::uint64_t saving = beyond([&] { save(state, dir + "/big"); });
  const std::uint64_t loading = beyond([&] { load(state, dir + "/big"); });
  const std::uint64_t verifying = beyond([&] { verify(dir + "/big"); });
  fmt::print("{{\"save\": {}, \"load\": {}, \"verify\": {}}}\n", saving, loading, verifying);
}

void run_flat(const std::string& dir) {
  const StateDict state = state_of(64 << 20);
  std::uint64_t first = 0, last = 0;
  for (int i = 0; i < 50; ++i) {
    save(state, dir + "/flat");
    last = resident("VmRSS:");
    if (i == 4) first = last;
  }
  fmt::print("{{\"growth_kib\": {}}}\n",
             (static_cast<std::int64_t>(last) - static_cast<std::int64_t>(first)) / 1024);
}

int run(const std::vector<std::string>& args) {
  const std::string& mode = args[0];
  const std::string& dir = args[1];
  const std::uint64_t n = args.size() > 2 ? std::strtoull(args[2].c_str(), nullptr, 10) : 0;
  const bool plain = args.size() < 4;
  std::filesystem::create_directories(dir);
  if (mode == "raw-write" || mode == "raw-read") {
    Tensor memory = filled(static_cast<std::int64_t>(n));
    const bool reads = mode == "raw-read";
    const RawLimit limit = raw_limit(dir, memory.bytes(), {.reads = reads});
    print(reads ? limit.read.seconds : limit.write.seconds);
  } else if (mode == "save") {
    run_save(dir, n, plain);
  } else if (mode == "load") {
    run_load(dir, n, plain);
  } else if (mode == "small") {
    run_small(dir, static_cast<std::int64_t>(n));
  } else if (mode == "reshard") {
    run_reshard(dir);
  } else if (mode == "coordination") {
    run_coordination(dir);
  } else if (mode == "memory") {
    run_memory(dir, n, !plain);
  } else if (mode == "flat") {
    run_flat(dir);
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) return 0;
  try {
    return args.size() < 2 ? 2 : run(args);
  } catch (const std::exception& e) {
    fmt::print(stderr, "save_load: {}\n", e.what());
    return 1;
  }
}
