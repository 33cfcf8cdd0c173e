// stop_save DIR STOPS SEED: a rank of a save stops (SIGSTOP) past the deadline and is woken later.
//
// The others must get an error at the deadline, the one that is woken must be fenced off, and a save that was
// made meanwhile must not be harmed. Prints one JSON object; exits 1 at the first broken promise, with the
// seed that repeats it.
#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "forked_ranks.h"
#include "saved_versions.h"

namespace {

using namespace cairn;
using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

constexpr auto kDeadline = 3s;
constexpr Seconds kGivenUp = kDeadline + 2s;  // and the others must have

class Harness {
 public:
  Harness(std::string dir, unsigned seed) : dir_(std::move(dir)), random_(seed) {}

  void run(int stops) {
    undisturbed();
    for (int i = 0; i < stops; ++i) stopped(i);
    fmt::print(R"({{"stops": {}, "fenced": {}, "finished": {}, "late": {}, "saved_meanwhile": {}}})"
               "\n",
               stops, fenced_, finished_, late_, meanwhile_);
  }

 private:
  void undisturbed() {
    const auto begin = std::chrono::steady_clock::now();
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, next_); });
    ranks.require_success("a save that nobody disturbed");
    span_ = std::chrono::steady_clock::now() - begin;
    at_ = next_++;
    require_saved(dir_, *at_);
  }

  // Every other time the rank is the coordinator, which has the lock: nobody can save while it sleeps.
  void stopped(int number) {
    const int victim = number % 2 == 0 ? 0 : 1 + static_cast<int>(random_() % (kRanks - 1));
    const int version = next_++;
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, version, kDeadline); });
    std::this_thread::sleep_for(span_ * std::uniform_real_distribution<>(0.1, 0.7)(random_));
    ranks.signal(victim, SIGSTOP);
    int failed = 0;
    for (int rank = 0; rank < kRanks; ++rank)
      if (rank != victim) failed += check_other(ranks.wait(rank), rank);
    const std::optional<int> before = version_in(dir_);
    require(before == at_ || before == version, "neither the old nor the new checkpoint");
    require(failed == kRanks - 1 || before == version, "a rank said the save was done");
    at_ = before;
    const bool published = before == version;  // without the rank, which had done its part
    if (victim != 0) {
      undisturbed_beside();
      ++meanwhile_;
    }
    ranks.signal(victim, SIGCONT);
    check_woken(ranks.wait(victim, 30s), victim, version, published);
    undisturbed();
  }

  // Returns 1 when it failed.
  static int check_other(const Ended& rank, int number) {
    require(rank.status == kSucceeded || rank.status == kRefused, "a rank ended oddly: " + rank.text);
    require(rank.after < kGivenUp + 1s, fmt::format("rank {} waited {:.1f} s", number, rank.after.count()));
    if (rank.status == kSucceeded) return 0;
    require(rank.after > kDeadline - 1s,
            fmt::format("rank {} gave up after {:.1f} s: {}", number, rank.after.count(), rank.text));
    return 1;
  }

  // A coordinator that stops between its last look at the clock and the rename still publishes when it wakes:
  // it has the lock, so that nobody else was there meanwhile.
  void check_woken(const Ended& woken, int victim, int version, bool published) {
    require(woken.status == kSucceeded || woken.status == kRefused, "a rank ended oddly: " + woken.text);
    const std::optional<int> found = version_in(dir_);
    const bool late = victim == 0 && found == version && at_ != version;
    require(found == at_ || late, "a rank that came too late has changed the checkpoint");
    require(woken.status == kRefused || published || late,
            "a rank that came too late said the save was done");
    ++(late ? late_ : woken.status == kRefused ? fenced_ : finished_);
    at_ = found;
  }

  // While the stopped rank still has its files open.
  void undisturbed_beside() {
    ForkedRanks ranks(kRanks, [&](Group& group) { save_version(group, dir_, next_); });
    ranks.require_success("a save beside a stopped rank");
    at_ = next_++;
    require(version_in(dir_) == at_, "a save beside a stopped rank is not there");
  }

  std::string dir_;
  std::mt19937 random_;
  Seconds span_{0};
  std::optional<int> at_;  // the version that is there
  int next_ = 1;
  int fenced_ = 0, finished_ = 0, late_ = 0, meanwhile_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return cairn::run_harness<Harness>("stop_save", argc, argv); }
