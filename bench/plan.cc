// plan [torch RANKS TENSORS]: how long the plans of many ranks take, and how much memory.
//
// Without arguments the rows of the large worlds are printed, each measured in a process of its own; with
// `torch`, one JSON object with the seconds of each step, for bench/parts/plan.py to compare.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/planner.h"
#include "plan/wire.h"

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// On a machine that others use too, this is what the work costs and the clock says how long it took.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A tensor that is described and has no memory.
Tensor described(Shape shape) {
  return Tensor(TensorView::contiguous(nullptr, DType::kFloat32, std::move(shape)), nullptr);
}

// The state of a training job, rank by rank; bench/parts/plan.py makes the same for torch. Of ten entries
// four are cut over all ranks, one over rows and columns, one over half the ranks and held twice, three are
// replicated tensors, and one is an object.
class Job {
 public:
  Job(int ranks, int tensors) : ranks_(ranks) {
    for (int t = 0; t < tensors; ++t) {
      const std::string layer = std::to_string(t / 10);
      const std::string parameter = "param_" + std::to_string(t % 10);
      FlatEntry entry;
      entry.path = {"model", "layers", layer, "block", parameter, "weight"};
      entry.name = join(entry.path);
      entry.value = value(t % 10);
      entries_.push_back(std::move(entry));
    }
    paths_ = paths_of(entries_);
  }

  SavePlan plan(int rank) {
    for (std::size_t t = 0; t < entries_.size(); ++t)
      move_to(rank, static_cast<int>(t % 10), entries_[t].value);
    SavePlan plan = create_default_local_save_plan(entries_);
    plan.planner_data = paths_;
    return plan;
  }

 private:
  Value value(int kind) const {
    const std::int64_t n = ranks_;
    if (kind < 4) return shard({8 * n, 1024}, {8, 1024});
    if (kind == 4) return shard({n, 4096}, {8, 512});
    if (kind == 5) return shard({4 * n, 256}, {8, 256});
    if (kind < 9) return described({512 * (kind - 5), 64});
    return 7;
  }

  // What the entry is on this rank: only where a shard lies differs.
  void move_to(int rank, int kind, Value& value) const {
    if (kind > 5) return;
    Shape& offsets = value.get<ShardedTensor>().shards[0].box.offsets;
    if (kind < 4) offsets[0] = 8 * rank;
    if (kind == 4) offsets[0] = rank / 8 * 8, offsets[1] = rank % 8 * 512;
    if (kind == 5) offsets[0] = rank % (ranks_ / 2) * 8;
  }

  static Value shard(Shape size, Shape sizes) {
    ShardedTensor tensor{DType::kFloat32, std::move(size), {}};
    Tensor data = described(sizes);
    tensor.shards.push_back({{{0, 0}, std::move(sizes)}, std::move(data)});
    return tensor;
  }

  int ranks_;
  Flattened entries_;
  PathMap paths_;
};

std::uint64_t memory(const char* what) {  // VmRSS or VmHWM, in bytes
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(what)) return 1024 * std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10);
  }
  return 0;
}

// From here on VmHWM counts anew.
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

void row(std::string_view name, double value, std::string_view unit, double target,
         std::string_view note = "") {
  fmt::print(R"({{"name": "{}", "cairn": {:.4g}, "unit": "{}", "target": {}, "note": "{}"}})"
             "\n",
             name, value, unit, target, note);
  std::fflush(stdout);
}

std::vector<std::string> messages_of(int ranks, int tensors) {
  Job job(ranks, tensors);
  std::vector<std::string> messages;
  for (int rank = 0; rank < ranks; ++rank) messages.push_back(encode_local_plan(job.plan(rank), rank, ranks));
  return messages;
}

std::vector<SavePlan> gather(const std::vector<std::string>& messages) {
  PlanGather gather(static_cast<int>(messages.size()));
  for (const std::string& message : messages) gather.add(as_bytes(message));
  return gather.take();
}

SavePlannerOptions caching() {
  SavePlannerOptions options;
  options.enable_plan_caching = true;
  return options;
}

void measure_large() {
  constexpr int kRanks = 2048;
  constexpr int kTensors = 1024;
  const std::vector<std::string> messages = messages_of(kRanks, kTensors);
  const auto start = Clock::now();
  const double cpu = cpu_seconds();
  std::vector<SavePlan> all = gather(messages);
  const double gathered = seconds_since(start);
  malloc_trim(0);  // what making the messages left behind is no part of the input
  const std::uint64_t input = memory("VmRSS");
  reset_peak();
  const auto middle = Clock::now();
  const GlobalSavePlan global = DefaultSavePlanner().create_global_plan(std::move(all));
  const double planned = seconds_since(middle);
  const double worked = cpu_seconds() - cpu;
  const std::uint64_t peak = memory("VmHWM");
  row("plan.2048x1024_cold", gathered + planned, "s", 2,
      fmt::format("decoding {:.2f} s, the rest {:.2f} s; CPU time {:.2f} s", gathered, planned, worked));
  const double items = double{kRanks} * kTensors;
  row("plan.2048x1024_memory", static_cast<double>(peak > input ? peak - input : 0) / items, "bytes/item",
      200, "peak beyond the gathered plans");
}

void measure_unchanged() {
  constexpr int kRanks = 2048;
  DefaultSavePlanner planner(caching());
  planner.create_global_plan(gather(messages_of(kRanks, 1024)));
  std::vector<std::string> messages;
  for (int rank = 0; rank < kRanks; ++rank) {
    messages.push_back(encode_local_plan(SavePlan::unchanged(), rank, kRanks));
  }
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    const GlobalSavePlan global = planner.create_global_plan(gather(messages));
    PlanEncoder encoder;
    for (int rank = 0; rank < kRanks; ++rank) {
      encoder.encode(PlanMessage::kGlobalPlan, global.plans[static_cast<std::size_t>(rank)], rank, kRanks);
    }
    best = std::min(best, seconds_since(start));
  }
  row("plan.2048x1024_unchanged", 1e3 * best, "ms", 50, "decoding and encoding included");
}

void measure_huge() {
  constexpr int kRanks = 16384;
  const auto start = Clock::now();
  Job job(kRanks, 1000);
  PlanGather gather(kRanks);
  PlanEncoder encoder;
  for (int rank = 0; rank < kRanks; ++rank) {
    gather.add(as_bytes(encoder.encode(PlanMessage::kLocalPlan, job.plan(rank), rank, kRanks)));
  }
  const double made = seconds_since(start);
  const GlobalSavePlan global = DefaultSavePlanner().create_global_plan(gather.take());
  row("plan.16384x1000", seconds_since(start), "s", 20,
      fmt::format("ranks' plans made, sent and read: {:.2f} s; CPU time of all {:.2f} s", made,
                  cpu_seconds()));
  row("plan.16384x1000_memory", static_cast<double>(memory("VmHWM")) / 1e9, "GB", 4, "peak of the process");
}

void measure_slope() {
  // The slope of log(CPU seconds) over log(items): 1 is linear, n log n about 1.1 here.
  std::vector<std::pair<double, double>> points;
  std::string note;
  for (const int ranks : {256, 512, 1024, 2048}) {
    const std::vector<std::string> messages = messages_of(ranks, 1024);
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double start = cpu_seconds();
      DefaultSavePlanner().create_global_plan(gather(messages));
      best = std::min(best, cpu_seconds() - start);
    }
    points.emplace_back(std::log(1024.0 * ranks), std::log(best));
    note += fmt::format("{}{} ranks {:.3f} s", note.empty() ? "" : ", ", ranks, best);
  }
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [a, b] : points) x += a, y += b, xx += a * a, xy += a * b;
  const double n = static_cast<double>(points.size());
  row("plan.slope", (n * xy - x * y) / (n * xx - x * x), "of log-log", 1.2, note);
}

// For bench/parts/plan.py: the steps that torch takes too.
int measure_for_torch(int ranks, int tensors) {
  Job job(ranks, tensors);
  std::vector<SavePlan> plans;
  for (int rank = 0; rank < ranks; ++rank) plans.push_back(job.plan(rank));
  double memory_only = 1e9;
  double with_wire = 1e9;
  std::size_t bytes = 0;
  SavePlannerOptions options;
  options.global.dedup = DedupRule::kDcpBalanced;
  options.global.split.enabled = false;
  for (int i = 0; i < 5; ++i) {
    std::vector<SavePlan> copy = plans;
    auto start = Clock::now();
    DefaultSavePlanner(options).create_global_plan(std::move(copy));
    memory_only = std::min(memory_only, seconds_since(start));

    start = Clock::now();
    PlanGather gather(ranks);
    bytes = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string message = encode_local_plan(plans[static_cast<std::size_t>(rank)], rank, ranks);
      bytes += message.size();
      gather.add(as_bytes(message));
    }
    const GlobalSavePlan global = DefaultSavePlanner(options).create_global_plan(gather.take());
    PlanEncoder encoder;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string message =
          encoder.encode(PlanMessage::kGlobalPlan, global.plans[static_cast<std::size_t>(rank)], rank, ranks);
      decode_global_plan(as_bytes(message), rank, ranks);
    }
    with_wire = std::min(with_wire, seconds_since(start));
  }
  fmt::print(R"({{"plan": {}, "with_wire": {}, "bytes_per_item": {}}})"
             "\n",
             memory_only, with_wire, static_cast<double>(bytes) / ranks / tensors);
  return 0;
}

// In a process of its own, so that its memory is its own.
bool in_child(const std::function<void()>& measure) {
  const pid_t child = fork();
  if (child == 0) {
    measure();
    std::fflush(stdout);
    _exit(0);
  }
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "torch") {
    return measure_for_torch(std::atoi(argv[2]), std::atoi(argv[3]));
  }
  if (argc != 1) {
    fmt::print(stderr, "usage: plan [torch RANKS TENSORS]\n");
    return 2;
  }
  const char* wanted = std::getenv("CAIRN_BENCH_ONLY");
  const std::string only = wanted == nullptr ? "" : wanted;
  if (!only.starts_with("plan") && !std::string_view("plan").starts_with(only)) return 0;
  bool good = true;
  for (void (*measure)() : {measure_large, measure_unchanged, measure_huge, measure_slope}) {
    good = in_child(measure) && good;
  }
  return good ? 0 : 1;
}
