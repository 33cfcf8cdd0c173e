#include "sim_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "group/steps.h"
#include "plan/wire_header.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;

// What the library gives a rank beyond the deadline to hear how a step ended, and a pause of its watch.
constexpr Time kGrace = milliseconds(1500) + milliseconds(25);

}  // namespace

Job::Job(World& world, Storage& storage, JobPlan plan)
    : world_(world),
      storage_(storage),
      plan_(std::move(plan)),
      network_(world, plan_.network, plan_.size()),
      outcomes_(static_cast<std::size_t>(operations()), std::vector<Outcome>(plan_.ranks.size())) {
  for (int rank = 0; rank < plan_.size(); ++rank) {
    const RankPlan& one = plan_.ranks[static_cast<std::size_t>(rank)];
    Process& process = world.add_process(one.troubles);
    processes_.push_back(&process);
    process.main_fiber =
        world.fibers.start([this, rank] { run_rank(rank); }, &process, world.fibers.now() + one.start);
  }
}

std::shared_ptr<FileSystem> Job::files_of(int rank) const {
  const auto faults = std::make_shared<Faults>();
  for (const Fault& fault : plan_.ranks[static_cast<std::size_t>(rank)].faults) faults->fail(fault);
  return faulty_file_system(storage_.seen_by(*processes_[static_cast<std::size_t>(rank)]), faults);
}

std::unique_ptr<StorageWriter> Job::writer_of(int rank) const {
  WriteOptions options;
  options.files_per_rank = plan_.files_per_rank;
  options.memory_budget = 1U << 20;
  options.durable = plan_.durable;
  options.checksums = plan_.checksums;
  return dcp_writer(files_of(rank), options);
}

namespace {

// A letter is its tag, the id of the save, and what it is about.
constexpr std::size_t kBodyAt = 1 + sizeof(SaveId);

bool has_plan_at(std::size_t at, std::string_view bytes) {
  const std::string_view magic(reinterpret_cast<const char*>(&kPlanMagic), sizeof kPlanMagic);
  return bytes.size() > at && bytes.substr(at).starts_with(magic);
}

// A rank of another version says so in the head of its plan.
void change_version(std::string& bytes) {
  if (has_plan_at(kBodyAt, bytes)) ++bytes[kBodyAt + offsetof(PlanHeader, version)];
}

// A rank that says nothing of what it has written: a vote is about the size of the results, the results, and
// what the writer attached.
void forget_results(std::string& bytes, int rank, int size) {
  constexpr std::size_t kResultsAt = kBodyAt + sizeof(std::uint64_t);
  if (!has_plan_at(kResultsAt, bytes)) return;
  const auto old_size = load<std::uint64_t>(bytes.data() + kBodyAt);
  const std::string none = encode_write_results({}, rank, size);
  bytes.replace(kResultsAt, old_size, none);
  store(bytes.data() + kBodyAt, static_cast<std::uint64_t>(none.size()));
}

}  // namespace

Rewrite Job::rewrite_of(int rank) const {
  if (rank != plan_.odd_rank) return {};
  if (plan_.odd == Odd::kVersion) return change_version;
  if (plan_.odd != Odd::kForgets) return {};
  return [rank, size = plan_.size()](std::string& bytes) { forget_results(bytes, rank, size); };
}

void Job::run_rank(int rank) {
  Process& process = *processes_[static_cast<std::size_t>(rank)];
  try {
    const int size = plan_.size() + (plan_.odd == Odd::kWorldSize && rank == plan_.odd_rank ? 1 : 0);
    const auto group = group_over(sim_mail(network_, process, rank, rewrite_of(rank)), rank, size);
    std::unique_ptr<StorageWriter> writer;
    for (int operation = 0; operation < operations() && !process.is_dead(); ++operation) {
      if (writer == nullptr || !plan_.keeps_writer) writer.reset();
      if (writer == nullptr) writer = writer_of(rank);
      run_operation(operation, rank, *group, *writer);
    }
  } catch (const Crashed&) {
    // It was dead, and its memory is given back now.
  }
}

void Job::run_operation(int operation, int rank, Group& group, StorageWriter& writer) {
  Process& process = *processes_[static_cast<std::size_t>(rank)];
  Outcome outcome;
  const auto fail = [&](Outcome::Kind kind, const Error& error) {
    outcome.kind = kind;
    outcome.text = error.what();
    outcome.code = error.code();
    if (const auto* e = dynamic_cast<const CheckpointError*>(&error)) outcome.step = e->step();
  };
  const int version = plan_.first_version + operation;
  outcome.started = world_.fibers.now();
  const Time stalled = process.stalled();
  try {
    if (plan_.loads) {
      load_once(rank, group, files_of(rank));
    } else {
      save_once(version, rank, group, writer);
    }
    outcome.kind = Outcome::Kind::kDone;
  } catch (const UnheardError& e) {
    fail(Outcome::Kind::kUnheard, e);
  } catch (const CheckpointError& e) {
    fail(Outcome::Kind::kFailed, e);
  } catch (const Error& e) {
    fail(Outcome::Kind::kOther, e);
  }
  if (process.is_dead()) return;
  outcome.ended = world_.fibers.now();
  outcome.stalled = process.stalled() - stalled;
  world_.note(&process, outcome.kind == Outcome::Kind::kDone ? "DONE" : "FAILED", outcome.text,
              static_cast<std::uint64_t>(version));
  if (outcome.kind == Outcome::Kind::kDone && !plan_.loads && !storage_.was_published(version))
    world_.break_promise(fmt::format("rank {} says that version {} is saved, and it is not", rank, version));
  outcomes_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(rank)] = std::move(outcome);
}

void Job::save_once(int version, int rank, Group& group, StorageWriter& writer) {
  Process& process = *processes_[static_cast<std::size_t>(rank)];
  const Odd odd = rank == plan_.odd_rank ? plan_.odd : Odd::kNot;
  const StateDict state = state_of(plan_.shapes, whole(version), version, rank, plan_.size(), odd);
  SaveOptions options;
  options.group = &group;
  options.coordinator_rank = plan_.coordinator;
  options.writer = &writer;
  options.deadline = plan_.deadline;
  process.attempt = {version, rank == plan_.coordinator, process.local_now() + plan_.deadline,
                     !is_found_by_planning(plan_.odd)};
  save(state, "memory", options);
}

void Job::load_once(int rank, Group& group, const std::shared_ptr<FileSystem>& files) {
  // Tensors of its own, even where all ranks have the same one: they are written to.
  StateDict state = state_of(plan_.shapes, whole_tensors(plan_.shapes, 0), 0, rank, plan_.size());
  const auto reader = dcp_reader(files, {.verify = Verify::kFull, .threads = plan_.files_per_rank});
  LoadOptions options;
  options.group = &group;
  options.coordinator_rank = plan_.coordinator;
  options.reader = reader.get();
  options.deadline = plan_.deadline;
  load(state, "memory", options);
  if (!(state == state_of(plan_.shapes, whole(plan_.first_version), plan_.first_version, rank, plan_.size())))
    world_.break_promise(fmt::format("rank {} has loaded something else than was saved", rank));
}

const std::vector<Tensor>& Job::whole(int version) {
  std::vector<Tensor>& tensors = whole_[version];
  if (tensors.empty()) tensors = whole_tensors(plan_.shapes, version);
  return tensors;
}

bool Job::all_done() const {
  for (const auto& ranks : outcomes_)
    for (const Outcome& one : ranks)
      if (one.kind != Outcome::Kind::kDone) return false;
  return true;
}

void Job::check() const {
  for (int operation = 0; operation < operations(); ++operation) {
    for (int rank = 0; rank < plan_.size(); ++rank) {
      const Outcome& one = outcome(operation, rank);
      if (one.kind == Outcome::Kind::kNone) {
        if (!process(rank).is_dead()) world_.break_promise(fmt::format("rank {} never came back", rank));
        continue;
      }
      check_time(one, rank);
      if (is_found_by_planning(plan_.odd) && one.kind == Outcome::Kind::kDone)
        world_.break_promise(fmt::format("rank {} saves although the ranks disagree", rank));
    }
    check_same_text(operation);
  }
}

void Job::check_time(const Outcome& outcome, int rank) const {
  if (outcome.ended - outcome.started <= plan_.deadline + kGrace + outcome.stalled) return;
  world_.break_promise(fmt::format("rank {} came back {} ms after its deadline: {}", rank,
                                   (outcome.ended - outcome.started - plan_.deadline).count() / 1000000,
                                   outcome.text));
}

// A rank hears the first word of a save along a tree; below one that is dead nobody hears it, and who
// believes in another number of ranks knows another tree.
bool Job::could_be_told(int rank, const Outcome& outcome) const {
  if (outcome.step != "begin" && outcome.step != "metadata") return true;
  if (plan_.odd == Odd::kWorldSize) return false;
  const int size = plan_.size();
  for (int me = (rank - plan_.coordinator + size) % size; me != 0; me &= me - 1)
    if (process((me + plan_.coordinator) % size).is_dead()) return false;
  return true;
}

// Where letters arrive and nobody is held up, all ranks that live know the same as the coordinator.
void Job::check_same_text(int operation) const {
  if (!plan_.network.is_clean() || process(plan_.coordinator).is_dead()) return;
  for (const Process* one : processes_)
    if (one->was_hung() || one->has_jumped()) return;
  const Outcome& said = outcome(operation, plan_.coordinator);
  for (int rank = 0; rank < plan_.size(); ++rank) {
    const Outcome& heard = outcome(operation, rank);
    if (heard.kind == Outcome::Kind::kNone || !could_be_told(rank, heard)) continue;
    if (heard.text == said.text) continue;
    world_.break_promise(fmt::format("rank {}: '{}'; the coordinator, rank {}: '{}'", rank, heard.text,
                                     plan_.coordinator, said.text));
  }
}

}  // namespace cairn::sim
