// slow_rank DIR save|load CALL_MS DEADLINE_MS: four ranks, one of which has a slow disk.
//
// Every call to the file system takes CALL_MS on rank 2. Either all ranks succeed before the deadline, or all
// of them fail at the deadline, give or take two seconds, and name rank 2; the old checkpoint is then still
// there. The slow rank itself is later by the calls that are under way and those that clean up. Prints what
// happened as one JSON object.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "cairn/cairn.h"
#include "testing/faulty.h"
#include "trainer_version.h"

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kRanks = 4;
constexpr int kSlow = 2;
constexpr Seconds kTolerance(2);
constexpr int kCallsToCleanUp = 12;  // those under way, and those that remove what was written
const WriteOptions kMany{
    .files_per_rank = 2, .memory_budget = 1 << 20, .durable = false};  // small buffers, many writes

// Enough small tensors for many calls.
StateDict state_of(int rank, int version) {
  StateDict state = trainer_state(rank, kRanks, version);
  for (int i = 0; i < 24; ++i)
    state.set(fmt::format("part{}", i), part_of(numbered({64, 1024}, version + i), rows_over(kRanks), rank));
  return state;
}

struct Ended {
  Seconds after{0};
  std::string error;  // empty: it succeeded
  bool names_the_slow_one = false;
};

class Trial {
 public:
  Trial(std::string dir, std::chrono::milliseconds call, std::chrono::milliseconds deadline)
      : dir_(std::move(dir)), call_(call), deadline_(deadline) {}

  std::array<Ended, kRanks> save(int version) {
    return on_all([&](Group& group) {
      const auto writer = dcp_writer(files_of(group.rank()), kMany);
      SaveOptions options;
      options.group = &group;
      options.writer = writer.get();
      options.deadline = deadline_;
      cairn::save(state_of(group.rank(), version), dir_, options);
    });
  }

  std::array<Ended, kRanks> load() {
    return on_all([&](Group& group) {
      const auto reader = dcp_reader(files_of(group.rank()), {.threads = 1});
      LoadOptions options;
      options.group = &group;
      options.reader = reader.get();
      options.deadline = deadline_;
      StateDict state = state_of(group.rank(), 0);
      cairn::load(state, dir_, options);
    });
  }

 private:
  std::shared_ptr<FileSystem> files_of(int rank) const {
    auto faults = std::make_shared<Faults>();
    if (rank == kSlow) faults->fail({.for_ever = true, .delay = call_, .only_delay = true});
    return faulty_file_system(posix_file_system(dir_, {.create = true}), faults);
  }

  template <class Body> std::array<Ended, kRanks> on_all(const Body& body) {
    std::array<Ended, kRanks> ends;
    const auto begin = Clock::now();
    run_ranks(kRanks, [&](Group& group) {
      Ended& end = ends[static_cast<std::size_t>(group.rank())];
      try {
        body(group);
      } catch (const CheckpointError& e) {
        end.error = e.what();
        end.names_the_slow_one = e.failures().contains(kSlow);
      }
      end.after = Clock::now() - begin;
    });
    return ends;
  }

  std::string dir_;
  std::chrono::milliseconds call_;
  std::chrono::milliseconds deadline_;
};

void judge(const std::array<Ended, kRanks>& ends, Seconds call, Seconds deadline) {
  const bool failed = !ends[0].error.empty();
  for (int rank = 0; rank < kRanks; ++rank) {
    const Ended& end = ends[static_cast<std::size_t>(rank)];
    require(end.error.empty() == !failed, "some ranks succeeded and others did not");
    if (!failed) continue;
    require(end.names_the_slow_one, "the rank that was slow is not named: " + end.error);
    const Seconds late = end.after - deadline, more = rank == kSlow ? kCallsToCleanUp * call : Seconds(0);
    require(late >= -kTolerance && late <= kTolerance + more,
            fmt::format("an error after {:.1f} s, and the deadline was {:.1f} s: {}", end.after.count(),
                        deadline.count(), end.error));
  }
  const auto later = [](const Ended& a, const Ended& b) { return a.after < b.after; };
  fmt::print(R"({{"failed": {}, "last_after": {:.2f}}})"
             "\n",
             failed, std::max_element(ends.begin(), ends.end(), later)->after.count());
}

void run(const std::string& dir, const std::string& what, int call, int deadline) {
  using std::chrono::milliseconds;
  (void)Trial(dir, milliseconds(0), std::chrono::seconds(60)).save(1);
  Trial trial(dir, milliseconds(call), milliseconds(deadline));
  const auto ends = what == "save" ? trial.save(2) : trial.load();
  judge(ends, milliseconds(call), milliseconds(deadline));
  const StateDict state = load_into_new(dir);
  const int version = what == "save" && ends[0].error.empty() ? 2 : 1;
  require_trainer(state, version);
  require(*state.find("part3") == Value(numbered({64, 1024}, version + 3)),
          "it is not the checkpoint it should be");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  return run_trial("slow_rank", fmt::format("{} {} {}", argv[2], argv[3], argv[4]),
                   [&] { run(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4])); });
}
