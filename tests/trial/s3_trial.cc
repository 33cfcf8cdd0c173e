// s3_trial --seeds N --first K [--threads T] [--each]: jobs save and load in a bucket of a loopback server
// that drops, delays, truncates, repeats and refuses as each seed says.
//
// After each of them every promise is looked at by a client to which nothing goes wrong: what a save that
// reported success has written is what is loaded, unless a later one replaced it; one that failed has left
// the older one whole; what is loaded meanwhile is of one save; nothing hangs; a clean-up leaves the
// checkpoint and nothing else.
//
// A seed fixes what is tried and what goes wrong how often, not the order in which requests arrive. Prints
// one JSON object, with --each a line a seed before it; exits 1 at the first broken promise, with its seed.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "promise.h"
#include "s3_seed.h"

namespace {

using namespace cairn;

struct Arguments {
  std::uint64_t seeds = 1;
  std::uint64_t first = 1;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  bool each = false;
};

// False when they make no sense.
bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--each") {
      arguments.each = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::uint64_t value = std::strtoull(argv[++i], nullptr, 10);
    if (name == "--seeds")
      arguments.seeds = value;
    else if (name == "--first")
      arguments.first = value;
    else if (name == "--threads")
      arguments.threads = static_cast<unsigned>(std::max<std::uint64_t>(value, 1));
    else
      return false;
  }
  return true;
}

nlohmann::ordered_json json_of(const S3Counts& counts) {
  nlohmann::ordered_json faults;
  for (std::size_t i = 0; i < kS3Wrongs; ++i)
    faults[std::string(name_of(static_cast<S3Wrong>(i)))] = counts.faults[i];
  return {{"seeds", counts.seeds},
          {"saves", counts.saves},
          {"done", counts.done},
          {"failed", counts.failed},
          {"conflicts", counts.conflicts},
          {"unsure", counts.unsure},
          {"loads", counts.loads},
          {"loaded", counts.loaded},
          {"requests", counts.requests},
          {"slowest_s", counts.slowest.count()},
          {"faults", faults},
          {"errors", counts.errors}};
}

class Trial {
 public:
  explicit Trial(const Arguments& arguments) : arguments_(arguments), next_(arguments.first) {}

  void run() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < arguments_.threads; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (!broken_.empty()) throw BrokenPromise(broken_);
    fmt::print("{}\n", json_of(counts_).dump());
  }

 private:
  void work() {
    for (;;) {
      const std::uint64_t seed = next_++;
      if (seed >= arguments_.first + arguments_.seeds || stopped_) return;
      S3Counts counts;
      std::string broken;
      try {
        run_s3_seed(seed, counts);
      } catch (const std::exception& e) {
        broken = fmt::format("{} (seed {})", e.what(), seed);
        stopped_ = true;
      }
      const std::lock_guard lock(mutex_);
      if (broken_.empty()) broken_ = broken;
      counts_.add(counts);
      if (!arguments_.each) continue;
      nlohmann::ordered_json line = json_of(counts);
      line["seed"] = seed;
      fmt::print("{}\n", line.dump());
    }
  }

  const Arguments arguments_;
  std::atomic<std::uint64_t> next_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  S3Counts counts_;
  std::string broken_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) return 2;
  return run_trial("s3_trial", fmt::format("first seed {}", arguments.first),
                   [&] { Trial(arguments).run(); });
}
