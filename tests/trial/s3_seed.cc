#include "s3_seed.h"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "s3_checks.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kDeadline(5);      // of a save or a load
constexpr seconds kCallDeadline(2);  // of one request
// Whoever fails cleans up behind himself, request by request. The machine may be busy.
constexpr seconds kPatience(25);

// What one rank says of a save or a load.
struct Said {
  bool done = false;
  bool conflict = false;
  bool timeout = false;
  bool warned = false;
  std::string text;
  int version = 0;  // that was loaded
};

struct Job {
  int version = 0;
  int ranks = 1;
  bool overwrite = true;
  bool checksums = true;
  milliseconds start{0};
  s3::ClientOptions client;
  std::vector<Said> said = {};
  std::string odd = {};  // what is no Error of cairn's
  Clock::time_point began = {}, ended = {};

  bool done() const { return said.front().done; }
  bool is_sure() const {
    return done() || std::any_of(said.begin(), said.end(), [](const Said& rank) { return rank.conflict; });
  }
};

class Seed {
 public:
  Seed(std::uint64_t seed, S3Counts& counts)
      : random_(seed), counts_(counts), faults_(random_.fork()), server_(draw_server()) {
    large_ = random_.chance(3);
    server_.set_fault([this](const S3Request& request) { return faults_.next(request); });
  }

  void run() {
    if (random_.chance(70)) save_undisturbed();
    for (int rounds = random_.between(1, 3); rounds > 0; --rounds) have_trouble();
    save_undisturbed();
    load_undisturbed();
    const bool force = random_.chance(20);
    require_only_checkpoint(server_, ahead_, large_, weak_ || force);
    ++counts_.seeds;
    counts_.requests += server_.requests();
    const auto faults = faults_.counts();
    for (std::size_t i = 0; i < kS3Wrongs; ++i) counts_.faults[i] += faults[i];
  }

 private:
  // Some look at more conditions than others, and a few at none: there two jobs at once are nobody's promise.
  S3ServerOptions draw_server() {
    S3ServerOptions options;
    weak_ = random_.chance(5);
    options.no_conditions = weak_;
    options.all_conditions = random_.chance(30);
    return options;
  }

  Job draw_job() {
    Job job;
    job.version = ++last_;
    job.ranks = random_.between(1, large_ ? 2 : 4);
    job.overwrite = !random_.chance(5);
    job.checksums = random_.chance(90);
    job.start = milliseconds(random_.chance(50) ? 0 : random_.between(1, 30));
    job.client.most_tries = random_.between(3, 10);
    job.client.deadline = kCallDeadline;
    job.client.most_delay = milliseconds(8);
    job.client.silence = S3Faults::kSilence;
    return job;
  }

  void save(Job& job) {
    job.said.resize(static_cast<std::size_t>(job.ranks));
    std::this_thread::sleep_for(job.start);
    const auto bucket = s3_bucket(server_.endpoint(), job.client);
    on_all_ranks(job, [&](Group& group, Said& said) {
      SaveOptions how;
      how.group = &group;
      how.files = s3_files(bucket);
      how.write.overwrite = job.overwrite;
      how.write.checksums = job.checksums;
      how.deadline = kDeadline;
      said.warned =
          !cairn::save(s3_state(group.rank(), job.ranks, job.version, large_), "s3", how).warnings.empty();
    });
  }

  // The version is what all of a rank's tensors say, or this is an odd end.
  void load(Job& job) {
    job.said.resize(static_cast<std::size_t>(job.ranks));
    std::this_thread::sleep_for(job.start);
    const auto bucket = s3_bucket(server_.endpoint(), job.client);
    const bool by_columns = job.version % 2 == 0;
    on_all_ranks(job, [&](Group& group, Said& said) {
      LoadOptions how;
      how.group = &group;
      how.files = s3_files(bucket);
      how.deadline = kDeadline;
      StateDict state = s3_state(group.rank(), job.ranks, 0, large_, by_columns);
      cairn::load(state, "s3", how);
      const Value* const step = state.find("step");
      require(step != nullptr && step->is<std::int64_t>(), "a load gives no step");
      said.version = static_cast<int>(step->get<std::int64_t>());
      require(state == s3_state(group.rank(), job.ranks, said.version, large_, by_columns),
              fmt::format("a load mixes version {} with others", said.version));
    });
  }

  template <class Body> void on_all_ranks(Job& job, const Body& body) {
    job.began = Clock::now();
    try {
      run_ranks(job.ranks, [&](Group& group) {
        Said& said = job.said[static_cast<std::size_t>(group.rank())];
        try {
          body(group, said);
          said.done = true;
        } catch (const Error& e) {
          said.text = e.what();
          said.conflict = e.code() == ErrorCode::kConflict;
          said.timeout = e.code() == ErrorCode::kTimeout;
          if (const auto* all = dynamic_cast<const CheckpointError*>(&e))
            for (const auto& [rank, error] : all->failures())
              said.conflict = said.conflict || error.code() == ErrorCode::kConflict;
          if (group.rank() == 0) said.text = fmt::format("{}: {}", name_of(e.code()), said.text);
        }
      });
    } catch (const std::exception& e) {
      job.odd = e.what();
    }
    job.ended = Clock::now();
  }

  void check(const Job& job, const char* what) {
    require(job.odd.empty(), fmt::format("{}: {}", what, job.odd));
    const auto time = job.ended - job.began;
    require(time < kDeadline + kPatience,
            fmt::format("{} took {:.1f} s: {}", what, std::chrono::duration<double>(time).count(),
                        job.said.front().text));
    counts_.slowest = std::max<std::chrono::duration<double>>(counts_.slowest, time);
    bool late = false;
    for (const Said& rank : job.said) late = late || rank.timeout;
    for (const Said& rank : job.said)
      require(late || rank.done == job.done(),
              fmt::format("{}: one rank says '{}', another '{}'", what, job.said.front().text, rank.text));
    if (!job.done()) ++counts_.errors[job.said.front().text.substr(0, job.said.front().text.find(':'))];
  }

  void check_save(const Job& job) {
    check(job, "a save");
    ++counts_.saves;
    ++(job.done() ? counts_.done : counts_.failed);
    if (!job.done() && job.is_sure()) ++counts_.conflicts;
    require(!job.done() || !weak_ || !at_ || job.said.front().warned, "a weak store, and nobody said so");
    require(job.overwrite || !at_ || !job.done(), "a checkpoint was replaced though overwriting was off");
  }

  void save_undisturbed() {
    Job job = draw_job();
    job.overwrite = true;
    job.start = milliseconds(0);
    job.client = {};
    save(job);
    check_save(job);
    require(job.done(), "an undisturbed save fails: " + job.said.front().text);
    at_ = seen();
    require(at_ == job.version, "an undisturbed save is not there");
  }

  void load_undisturbed() {
    Job job = draw_job();
    job.start = milliseconds(0);
    job.client = {};
    load(job);
    check(job, "a load");
    require(job.done(), "an undisturbed load fails: " + job.said.front().text);
    for (const Said& rank : job.said)
      require(rank.version == at_, "an undisturbed load gives another version");
  }

  void have_trouble() {
    std::vector<Job> saves = {draw_job()};
    if (!weak_ && random_.chance(35)) saves.push_back(draw_job());
    std::vector<Job> loads;
    if (random_.chance(40)) loads.push_back(draw_job());
    faults_.start();
    std::vector<std::thread> threads;
    for (Job& job : saves) threads.emplace_back([&] { save(job); });
    for (Job& job : loads) threads.emplace_back([&] { load(job); });
    for (std::thread& thread : threads) thread.join();
    faults_.stop();
    if (faults_.has_late()) std::this_thread::sleep_for(S3Faults::kLateness + milliseconds(100));

    for (const Job& job : saves) check_save(job);
    std::set<int> whole;
    for (const Job& job : saves) whole.insert(job.version);
    if (at_) whole.insert(*at_);
    for (const Job& job : loads) {
      check(job, "a load");
      ++counts_.loads;
      counts_.loaded += job.done() ? 1 : 0;
      for (const Said& rank : job.said)
        require(!rank.done || (whole.contains(rank.version) && rank.version == job.said.front().version),
                fmt::format("a load gives version {}, which was not to be had", rank.version));
    }
    look(saves);
  }

  // What is there is what was said.
  void look(const std::vector<Job>& saves) {
    std::set<std::optional<int>> possible;
    for (const Job& job : saves)
      if (job.done()) possible.insert(job.version);
    for (const Job& a : saves)
      for (const Job& b : saves)
        if (b.done() && a.ended < b.began) possible.erase(a.version);
    if (possible.empty()) possible.insert(at_);
    const std::optional<int> found = seen();
    for (const Job& job : saves) {
      if (job.done() || found != job.version) continue;
      require(!job.is_sure(), "a save that lost is there: " + job.said.front().text);
      ++counts_.unsure;
      possible.insert(found);
    }
    const auto name = [](std::optional<int> version) {
      return version ? std::to_string(*version) : "nothing";
    };
    std::string said;
    for (const Job& job : saves)
      said += fmt::format("; version {}: {}", job.version, job.done() ? "done" : job.said.front().text);
    require(possible.contains(found), fmt::format("{} is there, after {}{}", name(found), name(at_), said));
    at_ = found;
  }

  // By somebody to whom nothing goes wrong.
  std::optional<int> seen() const { return s3_version(s3_files(s3_bucket(server_.endpoint())), large_); }

  sim::Random random_;
  S3Counts& counts_;
  bool weak_ = false;
  bool large_ = false;
  S3Faults faults_;  // outlives the server
  S3Server server_;
  seconds ahead_{0};
  std::optional<int> at_;  // the version that is there
  int last_ = 0;
};

}  // namespace

void S3Counts::add(const S3Counts& other) {
  seeds += other.seeds, saves += other.saves, done += other.done, failed += other.failed;
  conflicts += other.conflicts, unsure += other.unsure, loads += other.loads, loaded += other.loaded;
  requests += other.requests;
  slowest = std::max(slowest, other.slowest);
  for (std::size_t i = 0; i < kS3Wrongs; ++i) faults[i] += other.faults[i];
  for (const auto& [code, count] : other.errors) errors[code] += count;
}

void run_s3_seed(std::uint64_t seed, S3Counts& counts) { Seed(seed, counts).run(); }

}  // namespace cairn
