// two_jobs DIR TIMES SEED: two jobs of four ranks save under one id at the same time.
//
// One commits and the other gets an error, or both get one; never is there a mix of both. Jobs that miss each
// other may both succeed. Prints one JSON object; exits 1 at the first broken promise, with the seed that
// repeats it.
#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "forked_ranks.h"
#include "saved_versions.h"

namespace {

using namespace cairn;

class Harness {
 public:
  Harness(std::string dir, unsigned seed) : dir_(std::move(dir)), random_(seed) {}

  void run(int times) {
    for (int i = 0; i < times; ++i) {
      if (i % 5 == 0) std::filesystem::remove_all(dir_);
      at_ = version_in(dir_);
      at_once();
    }
    fmt::print(R"({{"times": {}, "one": {}, "none": {}, "both": {}}})"
               "\n",
               times, one_, none_, both_);
  }

 private:
  void at_once() {
    const int a = next_++, b = next_++;
    ForkedRanks first(kRanks, [&](Group& group) { save_version(group, dir_, a); });
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 30000));
    ForkedRanks second(kRanks, [&](Group& group) { save_version(group, dir_, b); });
    const bool saved_a = succeeded(first), saved_b = succeeded(second);
    const std::optional<int> found = version_in(dir_);
    if (saved_a && saved_b) {
      require(found == a || found == b, "both jobs said they had saved, and neither has");
    } else {
      require(found == (saved_a ? a : saved_b ? b : at_), "what is there is not what the jobs said");
    }
    const bool whole = !found || files_in(dir_) == kFilesOfASave;
    require(whole, "something of the other job is left");
    ++(saved_a && saved_b ? both_ : saved_a || saved_b ? one_ : none_);
  }

  // The same on all ranks.
  static bool succeeded(ForkedRanks& job) {
    int good = 0;
    for (const Ended& rank : job.wait_all()) {
      require(rank.status == kSucceeded || rank.status == kRefused, "a rank ended oddly: " + rank.text);
      good += rank.status == kSucceeded ? 1 : 0;
    }
    require(good == 0 || good == kRanks, "some ranks of a job failed and some did not");
    return good == kRanks;
  }

  std::string dir_;
  std::mt19937 random_;
  std::optional<int> at_;  // the version that is there
  int next_ = 1;
  int one_ = 0, none_ = 0, both_ = 0;
};

}  // namespace

int main(int argc, char** argv) { return cairn::run_harness<Harness>("two_jobs", argc, argv); }
