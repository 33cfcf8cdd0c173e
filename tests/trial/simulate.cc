// simulate SEEDS FIRST_SEED [--twice] [--trace]: saves of many ranks on a virtual clock and network.
//
// Each seed is a world: jobs of 1 to 64 ranks that save over one another, and networks, crashes, hangs,
// clocks and disks that go wrong. The library runs as it is (virtual_threads.cc), so what is tried is what
// users have. After each seed every promise is looked at: the checkpoint is the old or the new one, whole;
// success is true; all ranks come back in time and say the same; the next save needs no help.
//
// Prints one JSON object; exits 1 at the first broken promise, with the seed that repeats it and the end of
// its trace. --twice runs every seed a second time and wants the same trace; --trace shows a trace anyway.
//
// simulate --ranks N: one save of N ranks, and how many letters it takes.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim_job.h"
#include "sim_seed.h"

namespace {

using namespace cairn::sim;

struct Arguments {
  std::uint64_t seeds = 1;
  std::uint64_t first = 1;
  bool twice = false;
  bool trace = false;
};

void show(const SeedResult& result) {
  for (const std::string& line : result.tail) fmt::print(stderr, "{}\n", line);
}

int report_broken(std::uint64_t seed, const std::string& what) {
  Counts unused;
  show(run_seed(seed, true, unused));
  fmt::print(stderr, "simulate: {} (seed {})\n", what, seed);
  return 1;
}

void print(const Counts& counts, std::uint64_t hash) {
  std::string errors;
  for (const auto& [kind, count] : counts.errors)
    errors += fmt::format(R"({}"{}": {})", errors.empty() ? "" : ", ", kind, count);
  fmt::print(
      R"({{"seeds": {}, "ranks": {}, "saves": {}, "loads": {}, "commits": {}, "done": {}, "crashes": {}, )"
      R"("hangs": {}, "clock_jumps": {}, "storage_faults": {}, "disagreements": {}, "stray_letters": {}, )"
      R"("letters": {}, "turns": {}, "errors": {{{}}}, "hash": "{:016x}"}})"
      "\n",
      counts.seeds, counts.ranks, counts.saves, counts.loads, counts.commits, counts.done, counts.crashes,
      counts.hangs, counts.jumps, counts.faults, counts.disagreements, counts.strays, counts.letters,
      counts.turns, errors, hash);
}

int run_seeds(const Arguments& arguments) {
  Counts counts;
  std::uint64_t all = 0;
  for (std::uint64_t seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed) {
    const SeedResult result = run_seed(seed, arguments.trace, counts);
    if (result.broken) return report_broken(seed, *result.broken);
    if (arguments.trace) show(result);
    if (arguments.twice) {
      Counts unused;
      if (run_seed(seed, false, unused).hash != result.hash)
        return report_broken(seed, "the same seed did something else the second time");
    }
    all = (all ^ result.hash) * 0x9fb21c651e98df25ULL;
  }
  print(counts, all);
  return 0;
}

// One undisturbed save: no exchange needs more than a letter to or from everybody but the coordinator.
int run_large(int ranks) {
  World world(1, false);
  Storage storage(world, {.has_locks = true, .most_delay = Time(0)});
  JobPlan plan;
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  plan.shapes.tensors = {{"w", cairn::Shape({4 * ranks, 4}), Shapes::Cut::kRows},
                         {"b", cairn::Shape({16}), Shapes::Cut::kReplicated}};
  plan.deadline = std::chrono::seconds(60);
  Job job(world, storage, std::move(plan));
  world.run([] {});
  if (!world.broken() && !job.all_done()) world.break_promise("an undisturbed save fails");
  std::uint64_t most = 0;
  for (const auto& [step, letters] : job.network().letters_by_step()) most = std::max(most, letters);
  if (!world.broken() && most > static_cast<std::uint64_t>(ranks))
    world.break_promise(fmt::format("an exchange of {} ranks takes {} letters", ranks, most));
  if (world.broken()) {
    fmt::print(stderr, "simulate: {}\n", *world.broken());
    return 1;
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      R"({{"ranks": {}, "letters": {}, "most_letters_of_an_exchange": {}, "exchanges": {}, "bytes": {}, )"
      R"("bytes_per_rank": {:.1f}, "peak_rss_kib": {}}})"
      "\n",
      ranks, job.network().letters(), most, job.network().letters_by_step().size(), job.network().bytes(),
      static_cast<double>(job.network().bytes()) / ranks, usage.ru_maxrss);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Every rank has a few buffers for the length of a save: kept, they cost neither system calls nor faults.
  ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "--ranks") return run_large(std::atoi(argv[2]));
  if (words.size() < 2) return 2;
  Arguments arguments;
  arguments.seeds = std::strtoull(argv[1], nullptr, 10);
  arguments.first = std::strtoull(argv[2], nullptr, 10);
  for (std::size_t i = 2; i < words.size(); ++i) {
    arguments.twice = arguments.twice || words[i] == "--twice";
    arguments.trace = arguments.trace || words[i] == "--trace";
  }
  return run_seeds(arguments);
}
