// Background saves of a state in CPU memory: how long the training stands still, and what else it notices.
//
// Prints rows (bench/run.py). CAIRN_BENCH_BYTES is the size of the state (2 GiB), CAIRN_BENCH_DISK a
// directory on the disk.
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cairn/async.h"
#include "measure.h"

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* said = std::getenv(name);
  return said == nullptr ? otherwise : std::strtoull(said, nullptr, 10);
}

unsigned cores() { return std::max(1U, std::thread::hardware_concurrency()); }

// Gone when it is over.
class Folder {
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/cairn-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder in " + parent);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// The best time of as many threads as a stager has, into memory that is there, on huge pages.
double memcpy_seconds(const StateDict& state, std::uint64_t bytes) {
  constexpr std::uint64_t kHuge = 2U << 20;
  void* const map =
      ::mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  auto* const to =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(map) + kHuge - 1) & ~(kHuge - 1));
  ::madvise(to, bytes, MADV_HUGEPAGE);
  std::vector<const Tensor*> tensors;
  for (const auto& [key, value] : state.find("model")->get<Dict>()) tensors.push_back(&value.get<Tensor>());
  const auto copy_all = [&] {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::min(cores(), 16U); ++i) {
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < tensors.size(); at = next++)
          std::memcpy(to + at * kTensorBytes, tensors[at]->bytes().data(), kTensorBytes);
      });
    }
  };
  copy_all();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRounds; ++i) best = std::min(best, seconds_of(copy_all));
  ::munmap(map, bytes + kHuge);
  return best;
}

void run_staging(const StateDict& state, std::uint64_t bytes) {
  const double limit = memcpy_seconds(state, bytes);
  const auto stager = default_stager();
  const auto stage = [&] { stager->stage(state, {}); };
  const double first = seconds_of(stage);
  double later = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRounds; ++i) later = std::min(later, seconds_of(stage));
  const double gb = static_cast<double>(bytes) / 1e9;
  const auto row = [&](const char* name, double seconds, const char* more) {
    fmt::print(R"({{"name": "{}", "cairn": {:.3f}, "unit": "GB/s", "limit": {:.3f}, "ratio": {:.3f}{}}})"
               "\n",
               name, gb / seconds, gb / limit, limit / seconds, more);
  };
  row("async.staging", later, R"(, "target": 0.8, "note": "of the parallel memcpy")");
  row("async.staging_first", first, R"(, "note": "new memory included")");
}

void run_call(const StateDict& state, const std::string& where) {
  AsyncSaver saver({.mode = StagingMode::kOverlapped});
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const Clock::time_point start = Clock::now();
    const SaveHandle handle = saver.async_save(state, where);
    times.push_back(1e3 * std::chrono::duration<double>(Clock::now() - start).count());
    handle.wait();
  }
  fmt::print(R"({{"name": "async.call_first", "cairn": {:.3f}, "unit": "ms", "target": 2}})"
             "\n",
             times.front());
  std::sort(times.begin(), times.end());
  fmt::print(R"({{"name": "async.call", "cairn": {:.3f}, "unit": "ms", "target": 2, )"
             R"("note": "overlapped, the median of {} calls"}})"
             "\n",
             times[times.size() / 2], kRounds);
}

// Restricts this thread, and those that it starts, to some cores.
void stay_on(unsigned first, unsigned count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = first; i < first + count; ++i) CPU_SET(i, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

// A loop on a core of its own that counts how often it came round.
class Loop {
 public:
  Loop()
      : thread_([this](const std::stop_token& stop) {
          stay_on(cores() - 1, 1);
          std::vector<float> values(4096, 1.0F);
          while (!stop.stop_requested()) {
            for (float& value : values) value = value * 0.999F + 0.001F;
            rounds_ += values[7] > 0 ? 1 : 2;  // so that the work cannot be left out
          }
        }) {}
  std::uint64_t rounds() const { return rounds_; }

 private:
  std::atomic<std::uint64_t> rounds_ = 0;
  std::jthread thread_;
};

double rate_while(const Loop& loop, const std::function<void()>& work) {
  const std::uint64_t before = loop.rounds();
  const double seconds = seconds_of(work);
  return static_cast<double>(loop.rounds() - before) / seconds;
}

void run_loop(const StateDict& state, const std::string& where) {
  if (cores() < 2) return;
  const Loop loop;
  stay_on(0, cores() - 1);
  AsyncSaver saver({.nice = 10});
  std::vector<double> losses;
  for (int i = 0; i < kRounds; ++i) {
    const double alone = rate_while(loop, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
    const SaveHandle handle = saver.async_save(state, where);
    const double beside = rate_while(loop, [&] { handle.wait(); });
    losses.push_back(100 * (1 - beside / alone));
  }
  stay_on(0, cores());
  std::sort(losses.begin(), losses.end());
  fmt::print(R"({{"name": "async.loop_loss", "cairn": {:.2f}, "unit": "%", "target": 3, )"
             R"("note": "of a CPU loop's rate on another core; median of {}, {:.2f} to {:.2f}"}})"
             "\n",
             losses[losses.size() / 2], kRounds, losses.front(), losses.back());
}

void run_memory(const StateDict& state, std::uint64_t bytes, const std::string& where) {
  AsyncOptions options;
  options.staging.budget = bytes + bytes / 100 + (1U << 20);
  AsyncSaver saver(options);
  const std::uint64_t before = resident("VmRSS:");
  reset_peak();
  for (int i = 0; i < 3; ++i) saver.async_save(state, where).wait();
  const auto beyond = static_cast<std::int64_t>(resident("VmHWM:") - before) -
                      static_cast<std::int64_t>(options.staging.budget);
  fmt::print(R"({{"name": "async.memory", "cairn": {}, "unit": "MiB", "target": 64, )"
             R"("note": "most beyond state and budget"}})"
             "\n",
             beyond / (1 << 20));
}

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

void run_flat(const std::string& where) {
  const StateDict state = state_of(64U << 20);
  AsyncSaver saver;
  std::vector<std::uint64_t> curve;
  std::string text = "async.flat: MiB, threads, descriptors after save";
  for (int i = 1; i <= 50; ++i) {
    saver.async_save(state, where).wait();
    curve.push_back(resident("VmRSS:"));
    if (i % 10 == 0)
      text += fmt::format("; {}: {:.1f}, {}, {}", i, static_cast<double>(curve.back()) / (1 << 20),
                          entries_of("/proc/self/task"), entries_of("/proc/self/fd"));
  }
  fmt::print("{}\n", text);
  fmt::print(R"({{"name": "async.flat", "cairn": {}, "unit": "KiB", "target": 1024, )"
             R"("note": "more after 50 background saves than after 5"}})"
             "\n",
             (static_cast<std::int64_t>(curve[49]) - static_cast<std::int64_t>(curve[4])) / 1024);
}

void run() {
  const std::uint64_t bytes = from_environment("CAIRN_BENCH_BYTES", std::uint64_t{2} << 30);
  const char* said = std::getenv("CAIRN_BENCH_DISK");
  const Folder memory("/dev/shm");
  const Folder disk(said != nullptr ? said : "build");
  run_flat(memory / "flat");
  const StateDict state = state_of(bytes);
  run_staging(state, bytes);
  run_call(state, disk / "call");
  run_loop(state, disk / "loop");
  run_memory(state, bytes, disk / "memory");
}

}  // namespace

int main() {
  const char* said = std::getenv("CAIRN_BENCH_ONLY");
  const std::string_view only = said == nullptr ? "" : said;
  if (!only.starts_with("async") && !std::string_view("async").starts_with(only)) return 0;
  try {
    run();
  } catch (const std::exception& e) {
    fmt::print(stderr, "async_cpu: {}\n", e.what());
    return 1;
  }
  return 0;
}
