// save_check DIR MODE VERSION [RANK]: saves and loads of real MPI processes, run by tests/mpi/test_save.py.
//
//   save, load     the state of VERSION; load cuts it another way and compares every byte
//   async          the states of 1 to VERSION, in the background; each is spoilt as soon as the call returns
//   fail           rank RANK has a tensor that cannot be written
//   stop           rank RANK stops in the middle of writing and is woken after the deadline
//   kill           rank RANK dies in the middle of writing
//
// Each rank prints "rank R: " and "ok" or its error's text.
#include <mpi.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cairn/async.h"
#include "cairn/cairn.h"
#include "cairn/mpi_group.h"
#include "testing/states.h"

namespace {

using namespace cairn;
using namespace std::chrono_literals;

constexpr auto kDeadline = 4s;
constexpr unsigned kStopped = 8;  // seconds

// Has an accident with the second item it is asked for.
class Unlucky final : public DefaultSavePlanner {
 public:
  Unlucky(bool unlucky, std::string mode) : unlucky_(unlucky), mode_(std::move(mode)) {}

  Value resolve_data(const WriteItem& item) override {
    if (unlucky_ && item.index.fqn == "optim.exp_avg") {
      if (mode_ == "fail") throw Error(ErrorCode::kInvalidArgument, "this tensor cannot be written");
      if (mode_ == "kill") ::kill(::getpid(), SIGKILL);
      const pid_t sleeper = ::getpid();
      if (::fork() == 0) {
        ::sleep(kStopped);
        ::kill(sleeper, SIGCONT);
        ::_exit(0);
      }
      ::kill(sleeper, SIGSTOP);
      unlucky_ = false;
    }
    return DefaultSavePlanner::resolve_data(item);
  }

 private:
  bool unlucky_;
  std::string mode_;
};

void require_same(const StateDict& got, const StateDict& expected) {
  const Flattened a = flatten(got), b = flatten(expected);
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto *x = a.at(i).value.get_if<ShardedTensor>(), *y = b[i].value.get_if<ShardedTensor>();
    const bool same =
        x == nullptr ? a[i].value == b[i].value : Value(x->shards.at(0).data) == Value(y->shards.at(0).data);
    if (!same) throw Error(ErrorCode::kCorrupt, "it is not what was saved").of_tensor(b[i].name);
  }
}

void spoil(const Value& value) {
  const auto* sharded = value.get_if<ShardedTensor>();
  Tensor tensor = sharded != nullptr ? sharded->shards.at(0).data : value.get<Tensor>();
  for (std::byte& byte : tensor.bytes()) byte = std::byte{0x5a};
}

void save_in_background(Group& group, const std::string& dir, int versions) {
  DefaultSavePlanner planner({.enable_plan_caching = true});
  AsyncOptions options;
  options.save = {.group = &group, .planner = &planner, .deadline = 30s};
  options.max_in_flight = 2;
  AsyncSaver saver(options);
  for (int version = 1; version <= versions; ++version) {
    const StateDict state = trainer_state(group.rank(), group.size(), version);
    (void)saver.async_save(state, dir);
    for (const auto& [name, value] : state.find("model")->get<Dict>()) spoil(value);
    for (const auto& [name, value] : state.find("optim")->get<Dict>()) spoil(value);
    if (version % 5 != 0) continue;
    saver.wait();
    StateDict loaded = trainer_state(group.rank(), group.size(), 0, true);
    load(loaded, dir, {.group = &group, .deadline = kDeadline});
    require_same(loaded, trainer_state(group.rank(), group.size(), version, true));
  }
}

void run(Group& group, const std::string& dir, const std::string& mode, int version, int rank) {
  if (mode == "load") {
    StateDict state = trainer_state(group.rank(), group.size(), 0, true);
    load(state, dir, {.group = &group, .deadline = kDeadline});
    require_same(state, trainer_state(group.rank(), group.size(), version, true));
    return;
  }
  if (mode == "async") return save_in_background(group, dir, version);
  Unlucky planner(mode != "save" && group.rank() == rank, mode);
  save(trainer_state(group.rank(), group.size(), version), dir,
       {.group = &group, .planner = &planner, .deadline = mode == "save" ? 30s : kDeadline});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string mode = argv[2];
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  std::string text = "ok";
  int rank = -1;
  {
    const auto group = mpi_group(MPI_COMM_WORLD, 30s);
    rank = group->rank();
    try {
      run(*group, argv[1], mode, std::atoi(argv[3]), argc > 4 ? std::atoi(argv[4]) : -1);
    } catch (const std::exception& e) {
      text = e.what();
    }
    std::printf("rank %d: %s\n", rank, text.c_str());
    std::fflush(stdout);
    // A dead rank would be waited for at the end.
    if (mode == "kill") ::_exit(0);
  }
  MPI_Finalize();
  return 0;
}
