// kill_save DIR KILLS SEED: saves of four processes over an existing checkpoint, each killed at some moment.
//
// After each kill the checkpoint must be the old or the new one, whole, and what a surviving rank said must
// be true. Every tenth save is left alone: it must succeed without help and leave nothing of the dead ones.
// Prints one JSON object; exits 1 at the first broken promise, with the seed that repeats it.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "forked_ranks.h"
#include "saved_versions.h"

namespace {

using namespace cairn;
using Clock = std::chrono::steady_clock;

// How busy the machine is changes: the moments follow, so that three kills in five come before the commit.
constexpr double kLonger = 1.010, kShorter = 0.985;

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
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, next_); });
    while (metadata_inode() == old && Clock::now() - begin < std::chrono::seconds(40))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::chrono::duration<double> time = Clock::now() - begin;
    ranks.require_success("a save that nobody disturbed");
    at_ = next_++;
    require_saved(dir_, *at_);
    return time;
  }

  // Another one when another .metadata is there; 0 when there is none.
  ino_t metadata_inode() const {
    struct stat status;
    return ::stat((dir_ + "/.metadata").c_str(), &status) == 0 ? status.st_ino : 0;
  }

  void killed() {
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, next_); });
    std::this_thread::sleep_for(span_ * std::uniform_real_distribution<>(0, 1)(random_));
    const auto victim = static_cast<int>(random_() % (kRanks + 2));
    for (int rank = 0; rank < kRanks; ++rank)
      if (victim >= kRanks || rank == victim) ranks.signal(rank, SIGKILL);
    bool succeeded = false;
    for (const Ended& rank : ranks.wait_all()) {
      succeeded = succeeded || rank.status == kSucceeded;
      require(rank.status == kSucceeded || rank.status == kRefused || rank.killed(),
              "a rank ended oddly: " + rank.text);
    }
    const std::optional<int> found = version_in(dir_);
    require(found == at_ || found == next_, "neither the old nor the new checkpoint");
    require(!succeeded || found == next_, "a rank said the save was done");
    ++(found == next_ ? new_ : old_);
    span_ *= found == next_ ? kShorter : kLonger;
    finished_ += succeeded ? 1 : 0;
    at_ = found;
    ++next_;
  }

  std::string dir_;
  std::mt19937 random_;
  std::chrono::duration<double> span_{0};
  std::optional<int> at_;  // the version that is there
  int next_ = 1;
  int old_ = 0, new_ = 0, finished_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return cairn::run_harness<Harness>("kill_save", argc, argv); }
