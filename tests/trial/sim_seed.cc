#include "sim_seed.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "checkpoint/dcp_names.h"
#include "format/dcp_metadata.h"
#include "sim_draw.h"

namespace cairn::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The exchange in which the coordinator of a group's first save gathers what was written.
constexpr std::uint64_t kFirstVotes = (std::uint64_t{1} << 16) + 4;

StorageOptions draw_storage(Random& random) {
  StorageOptions options;
  options.has_locks = random.chance(92);
  options.most_delay = random.chance(20) ? microseconds(0) : microseconds(random.chance(10) ? 20000 : 200);
  return options;
}

class Seed {
 public:
  Seed(std::uint64_t seed, bool traced, Counts& counts)
      : counts_(counts),
        world_(seed, traced),
        random_(world_.random.fork()),
        storage_(world_, draw_storage(random_)) {}

  SeedResult run() {
    if (random_.chance(80)) run_undisturbed("the first save");
    if (!world_.broken()) run_troubles();
    if (!world_.broken() && random_.chance(20)) run_load();
    if (!world_.broken()) run_undisturbed("a save after all troubles");
    if (!world_.broken()) require_no_debris();
    count();
    return {world_.trace_hash(), world_.broken(), world_.tail()};
  }

 private:
  Job& add(JobPlan plan) {
    for (int i = 0; i < plan.saves && !plan.loads; ++i) shapes_.push_back(plan.shapes);
    return *jobs_.emplace_back(std::make_unique<Job>(world_, storage_, std::move(plan)));
  }
  int next_version() const { return static_cast<int>(shapes_.size()) + 1; }

  void come_to_rest() {
    world_.run([this] {
      if (storage_.take_news()) look();
    });
  }

  // The checkpoint that is there is whole, and all of it is of the version that was published last.
  void look() {
    const int version = storage_.published().back();
    try {
      const auto reader = dcp_reader(storage_.files(), {.verify = Verify::kFull, .threads = 1});
      require_version(load_into_new("memory", std::nullopt, {.reader = reader.get()}),
                      shapes_[static_cast<std::size_t>(version - 1)], version);
      const Metadata metadata = read_dcp_metadata(*storage_.files()->open(kMetadataName));
      std::set<std::string> live{std::string(kMetadataName)};
      for (const std::string& name : metadata.storage_data.files()) live.insert(name);
      const std::string& save = *metadata.storage_meta->save_id;
      live.insert(manifest_name(*save_id_from(save)));
      storage_.set_live_files(std::move(live));
      live_save_ = save;
    } catch (const std::exception& e) {
      world_.break_promise(fmt::format("version {} is published and not whole: {}", version, e.what()));
    }
  }

  void run_undisturbed(const char* what) {
    const Job& job = add(draw_quiet_job(random_, next_version()));
    come_to_rest();
    if (world_.broken()) return;
    job.check();
    if (job.all_done() && storage_.published().back() == job.plan().first_version) return;
    std::string text;
    for (int rank = 0; rank < job.plan().size(); ++rank) text += " " + job.outcome(0, rank).text;
    world_.break_promise(fmt::format("{} fails:{}", what, text));
  }

  void run_troubles() {
    const std::size_t first = jobs_.size();
    const JobPlan plan = draw_troubled_job(random_, next_version());
    Job& job = add(plan);
    const int lot = random_.between(0, 99);
    if (lot < 15) add_rival(Time(random_.below(5'000'000)));
    if (lot >= 15 && lot < 40) add_rival(plan.deadline + Time(random_.below(2'000'000'000)));
    if (lot >= 40 && lot < 50) add_successor(job);
    come_to_rest();
    for (std::size_t i = first; i < jobs_.size() && !world_.broken(); ++i) jobs_[i]->check();
    if (!world_.broken() && !storage_.published().empty()) look();
  }

  // Another job that saves under the same id, at the same time or when the first one has given up.
  void add_rival(Time later) {
    JobPlan plan = random_.chance(50) ? draw_troubled_job(random_, next_version())
                                      : draw_quiet_job(random_, next_version());
    for (RankPlan& rank : plan.ranks) {
      rank.start += later;
      if (rank.troubles.crash_at != kNever) rank.troubles.crash_at += later;
    }
    add(std::move(plan));
  }

  // The job is started again, on wires that still hold letters of its first life: what ranks have written.
  void add_successor(Job& job) {
    JobPlan plan = job.plan();
    plan.first_version = next_version();
    plan.saves = 1;
    plan.network.keeps_order = false;
    plan.network.loss = 0;
    const Time later = plan.deadline + milliseconds(1600) + Time(random_.below(1'000'000'000));
    for (RankPlan& rank : plan.ranks) rank = {.troubles = {}, .faults = {}, .start = later};
    Job& next = add(std::move(plan));
    job.network().record(job.plan().coordinator);
    world_.fibers.start([this, &job, &next] { plant_letters(job, next); }, nullptr,
                        world_.fibers.now() + later);
  }

  void plant_letters(Job& job, Job& next) {
    for (const Network::Recorded& one : job.network().recording()) {
      if (one.letter.step != kFirstVotes || random_.chance(30)) continue;
      next.network().plant(one.from, job.plan().coordinator,
                           {world_.fibers.now(), one.letter.step, one.letter.bytes});
      ++counts_.strays;
    }
  }

  void run_load() {
    if (storage_.published().empty()) return;
    const int version = storage_.published().back();
    const Job& job = add(draw_loading_job(random_, shapes_[static_cast<std::size_t>(version - 1)], version));
    come_to_rest();
    if (!world_.broken()) job.check();
  }

  // Without locks nobody may clean up: somebody else might be writing.
  void require_no_debris() {
    if (!storage_.options().has_locks) return;
    for (const FileEntry& file : storage_.files()->list())
      if (file.name != kMetadataName && file.name.find(live_save_) == file.name.npos)
        world_.break_promise(fmt::format("'{}' is left over", file.name));
  }

  void count() {
    ++counts_.seeds;
    counts_.commits += storage_.published().size();
    counts_.turns += world_.fibers.turns();
    for (const Process& one : world_.processes()) {
      counts_.crashes += one.is_dead() ? 1 : 0;
      counts_.hangs += one.was_hung() ? 1 : 0;
      counts_.jumps += one.has_jumped() ? 1 : 0;
    }
    for (const auto& job : jobs_) count(*job);
  }

  void count(Job& job) {
    counts_.ranks += static_cast<std::uint64_t>(job.plan().size());
    (job.plan().loads ? counts_.loads : counts_.saves) += static_cast<std::uint64_t>(job.operations());
    counts_.letters += job.network().letters();
    counts_.disagreements += job.plan().odd == Odd::kNot ? 0 : 1;
    for (const RankPlan& rank : job.plan().ranks) counts_.faults += rank.faults.size();
    for (int operation = 0; operation < job.operations(); ++operation) {
      for (int rank = 0; rank < job.plan().size(); ++rank) {
        const Outcome& one = job.outcome(operation, rank);
        counts_.done += one.kind == Outcome::Kind::kDone ? 1 : 0;
        if (one.code) ++counts_.errors[std::string(name_of(*one.code))];
      }
    }
  }

  Counts& counts_;
  World world_;
  Random random_;
  Storage storage_;
  std::vector<Shapes> shapes_;  // by version, from 1 on
  std::vector<std::unique_ptr<Job>> jobs_;
  std::string live_save_;
};

}  // namespace

SeedResult run_seed(std::uint64_t seed, bool traced, Counts& counts) {
  return Seed(seed, traced, counts).run();
}

}  // namespace cairn::sim
