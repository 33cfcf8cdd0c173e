// kill_at_points DIR ROUNDS SEED [PREFIX[,PREFIX...]]: ranks are killed, fail or are held up at named points.
//
// Every scene (scenes.h) is first played undisturbed, to see which rank comes to which point. Then, for each
// point, a rank is disturbed there. ROUNDS 0: each point is killed at once in the first two scenes, the plain
// saves, and in the others those that were not reached before; the rank and whether it is the first or second
// time are chosen by the seed. ROUNDS n: n times everything: coordinator, a middle rank and the last; first
// and second time; kill, error and sleep. PREFIX: only points that begin so. Prints one JSON object; exits 1
// at the first broken promise, with what repeats it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scenes.h"

namespace {

using namespace cairn;
using std::chrono::seconds;

constexpr seconds kSoon(12);  // well before the deadline: nobody may still wait then for a rank that died

struct Trial {
  std::string point, action;
  int victim = 0;
  long nth = 1;
};

// Where nothing can fail, so that nobody cleans up after it or tells the others; and where only the network
// can, which the simulation tries: whoever misses a message is waited for until the deadline.
bool cannot_fail(const std::string& point) {
  static const std::set<std::string> points = {
      "file.after_rename", "file.after_remove", "async.before_save",   "async.saved",
      "step.part_sent",    "step.answer_heard", "step.broadcast_heard"};
  return points.contains(point);
}

// The ranks that were left alone and failed all say the same.
void require_same_texts(const Outcome& outcome) {
  const Ended* first = nullptr;
  for (std::size_t i = 0; i < outcome.ranks.size(); ++i) {
    const Ended& rank = outcome.ranks[i];
    if (static_cast<int>(i) == outcome.victim || rank.status != kRefused) continue;
    if (first == nullptr) first = &rank;
    require(rank.text == first->text,
            fmt::format("one rank says '{}', another '{}'", first->text, rank.text));
  }
}

void check_killed(const Outcome& outcome) {
  for (const Ended& rank : outcome.ranks) {
    if (&rank == &outcome.ranks[static_cast<std::size_t>(outcome.victim)]) continue;
    require(rank.status == kSucceeded || rank.status == kRefused, "a rank ended oddly: " + rank.text);
    require(rank.after < kSoon, fmt::format("a rank waited for {:.1f} s", rank.after.count()));
    require(rank.status == kSucceeded || rank.text.find("rank ") != rank.text.npos,
            "an error does not say whose it is: " + rank.text);
  }
}

void check_failed(const Outcome& outcome) {
  const Ended& victim = outcome.ranks[static_cast<std::size_t>(outcome.victim)];
  for (const Ended& rank : outcome.ranks) {
    require(rank.status == kSucceeded || rank.status == kRefused, "a rank ended oddly: " + rank.text);
    require(rank.after < kSoon, fmt::format("a rank waited for {:.1f} s", rank.after.count()));
    if (victim.status == kSucceeded) continue;
    require(rank.status == kRefused && rank.text.find(outcome.point) != rank.text.npos,
            fmt::format("rank {} failed: '{}'; another says '{}'", outcome.victim, victim.text, rank.text));
  }
  require_same_texts(outcome);
}

class Points {
 public:
  Points(const std::string& dir, unsigned seed, std::vector<std::string> prefixes)
      : random_(seed), prefixes_(std::move(prefixes)) {
    for (auto& scene : save_scenes(dir)) scenes_.push_back(std::move(scene));
    for (auto& scene : other_scenes(dir)) scenes_.push_back(std::move(scene));
  }

  void run(int rounds) {
    for (const auto& scene : scenes_) {
      is_plain_done_ = scene != scenes_[0] && scene != scenes_[1];
      const std::vector<Ended> undisturbed = play(*scene, {});
      for (int round = 0; round < std::max(rounds, 1); ++round)
        for (const Trial& trial : trials_of(undisturbed, rounds > 0)) play(*scene, trial);
    }
    print();
  }

 private:
  std::vector<Ended> play(Scene& scene, const Trial& trial) {
    try {
      return try_to_play(scene, trial);
    } catch (const std::exception& e) {
      throw BrokenPromise(fmt::format("{}, {} at {}:{} of rank {}: {}", scene.name(), trial.action,
                                      trial.point, trial.nth, trial.victim, e.what()));
    }
  }

  std::vector<Ended> try_to_play(Scene& scene, const Trial& trial) {
    scene.prepare();
    std::map<int, std::string> failpoints;
    if (!trial.point.empty())
      failpoints[trial.victim] = fmt::format("{}:{}:{}", trial.point, trial.nth, trial.action);
    ForkedRanks ranks(
        scene.ranks(), [&](Group& group) { scene.run(group); }, failpoints);
    Outcome outcome{trial.point, trial.action, trial.victim, ranks.wait_all()};
    // Which rank makes a directory, say, is a race: whoever did not come to its point was not disturbed.
    if (!came_to(outcome, trial.nth)) outcome.point = outcome.action = "";
    check(scene, outcome);
    scene.check(outcome);
    if (!outcome.point.empty()) ++fired_[trial.point][trial.action];
    ++runs_;
    return outcome.ranks;
  }

  static bool came_to(const Outcome& outcome, long nth) {
    const Ended& victim = outcome.ranks[static_cast<std::size_t>(outcome.victim)];
    const auto found = victim.reached.find(outcome.point);
    return outcome.action == "kill" ? victim.killed() : found != victim.reached.end() && found->second >= nth;
  }

  static void check(const Scene& scene, const Outcome& outcome) {
    if (outcome.action == "kill") return check_killed(outcome);
    if (outcome.action == "error" && !scene.fails()) return check_failed(outcome);
    for (const Ended& rank : outcome.ranks)
      require(rank.status == (scene.fails() ? kRefused : kSucceeded), "a rank ended oddly: " + rank.text);
  }

  bool is_wanted(const std::string& point) const {
    return prefixes_.empty() || std::any_of(prefixes_.begin(), prefixes_.end(),
                                            [&](const std::string& p) { return point.starts_with(p); });
  }

  std::vector<Trial> trials_of(const std::vector<Ended>& ranks, bool all) {
    const auto last = static_cast<int>(ranks.size()) - 1;
    std::map<std::string, std::vector<Trial>> possible;
    for (const int victim : std::set<int>{0, std::min(1, last), last}) {
      for (const auto& [point, times] : ranks[static_cast<std::size_t>(victim)].reached)
        for (long nth = 1; nth <= std::min(times, 2L); ++nth)
          if (is_wanted(point)) possible[point].push_back({point, "kill", victim, nth});
    }
    std::vector<Trial> trials;
    for (const auto& [point, choices] : possible) {
      if (!all && is_plain_done_ && fired_.contains(point)) continue;
      if (!all) trials.push_back(choices[random_() % choices.size()]);
      for (Trial trial : all ? choices : std::vector<Trial>()) {
        for (const char* action : {"kill", "error", "sleep"}) {
          trial.action = action;
          if (trial.action != "error" || !cannot_fail(point)) trials.push_back(trial);
        }
      }
    }
    return trials;
  }

  void print() const {
    const nlohmann::ordered_json counts = {{"runs", runs_}, {"points", fired_.size()}, {"fired", fired_}};
    fmt::print("{}\n", counts.dump());
  }

  std::mt19937 random_;
  std::vector<std::string> prefixes_;
  std::vector<std::unique_ptr<Scene>> scenes_;
  std::map<std::string, std::map<std::string, int>> fired_;
  bool is_plain_done_ = false;
  int runs_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) return 2;
  ::setenv("CAIRN_FAILPOINT_MS", "300", 1);
  return run_trial("kill_at_points", fmt::format("seed {}", argv[3]), [&] {
    std::filesystem::create_directories(argv[1]);
    const auto seed = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
    Points(argv[1], seed, parts_of(argc > 4 ? argv[4] : "")).run(std::atoi(argv[2]));
  });
}
