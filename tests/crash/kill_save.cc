// kill_save DIR KILLS SEED: saves of four processes over an existing checkpoint, each killed at some moment.
//
// After each kill the checkpoint must be the old or the new one, whole, and what a surviving rank said must
// be true. Every tenth save is left alone: it must succeed without help and leave nothing of the dead ones.
// Prints one JSON object; exits 1 at the first broken promise, with the seed that repeats it.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cairn/cairn.h"
#include "engine/test_states.h"
#include "socket_mail.h"

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kSucceeded = 0;
constexpr int kFailed = 3;

// Tensors of a few hundred KiB for each rank, so that a save takes a while.
StateDict state_of(int rank, int version) {
  StateDict state = trainer_state(rank, kRanks, version);
  const MeshLayout rows = rows_over(kRanks);
  for (int i = 0; i < 3; ++i)
    state.set(fmt::format("large{}", i), part_of(numbered({1024, 256}, version + i), rows, rank));
  return state;
}

[[noreturn]] void be_rank(Sockets& sockets, int rank, const std::string& dir, int version) {
  sockets.close_all_but(rank);
  int status = kSucceeded;
  try {
    const auto group = group_over(std::make_unique<SocketMail>(sockets, rank), rank, kRanks);
    SaveOptions options;
    options.group = group.get();
    options.deadline = std::chrono::seconds(10);
    save(state_of(rank, version), dir, options);
  } catch (const CheckpointError&) {
    status = kFailed;
  } catch (const std::exception& e) {
    fmt::print(stderr, "rank {}: {}\n", rank, e.what());
    status = 4;
  }
  ::_exit(status);
}

std::vector<pid_t> start(const std::string& dir, int version) {
  Sockets sockets(kRanks);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(sockets, rank, dir, version);
    ranks.push_back(pid);
  }
  return ranks;
}

// The version of a checkpoint that is whole; nullopt when there is none; throws when it is neither.
std::optional<int> version_in(const std::string& dir) {
  if (!std::filesystem::exists(dir + "/.metadata")) return std::nullopt;
  const StateDict state = load_into_new(dir);
  const auto version = static_cast<int>(state.find("step")->get<std::int64_t>());
  const auto same = [&](const char* name, const Tensor& tensor, const Value* found) {
    if (found == nullptr || !(*found == Value(tensor)))
      throw std::runtime_error(fmt::format("'{}' is not that of version {}", name, version));
  };
  const Dict& model = state.find("model")->get<Dict>();
  same("model.w", numbered({37, 24}, version), model.find("w"));
  same("model.b", numbered({24}, version + 1), model.find("b"));
  same("optim.exp_avg", numbered({129, 40}, version + 3), state.find("optim")->get<Dict>().find("exp_avg"));
  for (int i = 0; i < 3; ++i)
    same("large", numbered({1024, 256}, version + i), state.find(fmt::format("large{}", i)));
  return version;
}

class Harness {
 public:
  Harness(std::string dir, unsigned seed) : dir_(std::move(dir)), random_(seed) {}

  void run(int kills) {
    measure();
    for (int i = 0; i < kills; ++i) {
      if (i % 50 == 49) begin_anew();
      if (i % 10 == 9) undisturbed();
      killed();
    }
    undisturbed();
    fmt::print(
        R"({{"kills": {}, "before_commit": {}, "after_commit": {}, "finished": {}, "span_ms": {:.1f}}})"
        "\n",
        kills, old_, new_, finished_, 1e3 * span_.count());
  }

 private:
  // How long a save takes until its checkpoint appears: most kills come before that, some after.
  void measure() {
    std::vector<std::chrono::duration<double>> times;
    for (int i = 0; i < 5; ++i) times.push_back(undisturbed());
    std::sort(times.begin(), times.end());
    span_ = 1.3 * times[2];
  }

  void begin_anew() {
    std::filesystem::remove_all(dir_);
    at_ = std::nullopt;
  }

  // Returns the time until the new checkpoint was there.
  std::chrono::duration<double> undisturbed() {
    const ino_t old = metadata_inode();
    const auto begin = Clock::now();
    const std::vector<pid_t> ranks = start(dir_, next_);
    while (metadata_inode() == old && Clock::now() - begin < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::chrono::duration<double> time = Clock::now() - begin;
    for (const pid_t pid : ranks) {
      if (reap(pid) != kSucceeded) throw std::runtime_error("a save that nobody disturbed failed");
    }
    at_ = next_++;
    require(version_in(dir_) == at_, "an undisturbed save is not there");
    const auto files = std::distance(std::filesystem::directory_iterator(dir_), {});
    require(files == kRanks + 2, "an undisturbed save left something of the dead ones");
    return time;
  }

  // Another one when another .metadata is there; 0 when there is none.
  ino_t metadata_inode() const {
    struct stat status;
    return ::stat((dir_ + "/.metadata").c_str(), &status) == 0 ? status.st_ino : 0;
  }

  void killed() {
    std::vector<pid_t> ranks = start(dir_, next_);
    std::this_thread::sleep_for(span_ * std::uniform_real_distribution<>(0, 1)(random_));
    const auto victim = static_cast<std::size_t>(random_() % (kRanks + 2));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (victim >= ranks.size() || i == victim) ::kill(ranks[i], SIGKILL);
    bool succeeded = false;
    for (const pid_t pid : ranks) {
      const int status = reap(pid);
      succeeded = succeeded || status == kSucceeded;
      require(status == kSucceeded || status == kFailed || status == -SIGKILL, "a rank ended oddly");
    }
    const std::optional<int> found = version_in(dir_);
    require(found == at_ || found == next_, "neither the old nor the new checkpoint");
    require(!succeeded || found == next_, "a rank said the save was done");
    ++(found == next_ ? new_ : old_);
    finished_ += succeeded ? 1 : 0;
    at_ = found;
    ++next_;
  }

  // Exit status, or the negated signal. A rank that is still there after 20 s hangs.
  static int reap(pid_t pid) {
    const auto until = Clock::now() + std::chrono::seconds(20);
    for (int status = 0; Clock::now() < until;) {
      if (::waitpid(pid, &status, WNOHANG) == pid)
        return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    throw std::runtime_error("a rank hangs");
  }

  static void require(bool good, const char* what) {
    if (!good) throw std::runtime_error(what);
  }

  std::string dir_;
  std::mt19937 random_;
  std::chrono::duration<double> span_{0};
  std::optional<int> at_;  // the version that is there
  int next_ = 1;
  int old_ = 0, new_ = 0, finished_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    Harness(argv[1], static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10))).run(std::atoi(argv[2]));
  } catch (const std::exception& e) {
    fmt::print(stderr, "kill_save: {} (seed {})\n", e.what(), argv[3]);
    return 1;
  }
  return 0;
}
