#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/current_error.h"
#include "base/trial.h"
#include "base/wire_bytes.h"
#include "cairn/cairn.h"
#include "group/steps.h"
#include "load/dcp_reader.h"
#include "load/shared_reads.h"
#include "plan/wire_load.h"

namespace cairn {
namespace {

constexpr std::uint64_t kLeastRound = 1 << 20;
constexpr std::uint64_t kMostRound = 32 << 20;
constexpr int kMostRestarts = 5;
constexpr std::chrono::milliseconds kPause(5);

// What a rank says when the checkpoint was replaced under it. All ranks hear of all failures of a step, so
// that all of them know from it alone whether to begin again.
constexpr std::string_view kReplaced =
    "the checkpoint was replaced while it was being loaded, and so again each time the load began anew: "
    "saves "
    "under this id come faster than it can be read";

bool is_replaced(const Error& error) {
  return error.code() == ErrorCode::kConflict && error.message() == kReplaced;
}

// A rank with a failure of its own would fail again.
bool may_begin_again(const CheckpointError& error) {
  const auto& all = error.failures();
  return !all.empty() &&
         std::all_of(all.begin(), all.end(), [](const auto& failure) { return is_replaced(failure.second); });
}

// One load on one rank: what its steps share.
class Loading {
 public:
  // `state` gives the state to fill when it is first needed: what fails there fails on all ranks.
  Loading(std::function<StateDict&()> state, const std::string& id, const LoadOptions& options, Group& group,
          LoadPlanner& planner)
      : state_(std::move(state)),
        id_(id),
        options_(options),
        steps_(group, coordinator_of(options, group), Steps::deadline_after(options.deadline)),
        planner_(planner),
        reader_(options.reader),
        report_(options.report == nullptr ? own_report_ : *options.report) {
    report_ = {};
  }

  // `finish` runs when this rank has all its data; what it throws fails on all ranks.
  LoadResult run(const std::function<void()>& finish) try { return load(finish); } catch (...) {
    report_all_written();
    throw;
  }

 private:
  LoadResult load(const std::function<void()>& finish) {
    while (!read_one_checkpoint()) begin_again();
    if (report_.restarts > 0) require_one_version();
    if (finish) {
      steps_.all_gather("state", [&] {
        finish();
        return std::string();
      });
    }
    return {report_, planner_.report(), warnings()};
  }

  // False, on all ranks, when another checkpoint took its place meanwhile.
  bool read_one_checkpoint() {
    try {
      description_ = steps_.broadcast("metadata", telling([&] {
                                        std::string description = reader().fetch_description();
                                        CAIRN_POINT("load.described");
                                        return description;
                                      }));
      make_plan();
      read();
      return true;
    } catch (const UnheardError&) {
      throw;  // the others may know better
    } catch (const CheckpointError& e) {
      if (report_.restarts == kMostRestarts || !may_begin_again(e)) throw;
      return false;
    }
  }

  void begin_again() {
    std::move(report_.written.begin(), report_.written.end(),
              std::inserter(overwritten_, overwritten_.end()));
    const int restarts = report_.restarts;
    report_ = {};
    report_.restarts = restarts + 1;
    std::this_thread::sleep_for(kPause * (1 << restarts));  // whoever replaces it may be in the middle of it
  }

  // A load that fails has also changed what earlier checkpoints filled.
  void report_all_written() {
    std::move(report_.written.begin(), report_.written.end(),
              std::inserter(overwritten_, overwritten_.end()));
    report_.written.assign(overwritten_.begin(), overwritten_.end());
  }

  // What an earlier checkpoint has filled must be filled again by the one that stands now.
  void require_one_version() {
    steps_.all_gather("read", [&] {
      for (const std::string& name : overwritten_) {
        if (std::binary_search(report_.written.begin(), report_.written.end(), name)) continue;
        throw Error(ErrorCode::kConflict,
                    "it was read from a checkpoint that was then replaced by one that does not have it: load "
                    "again into a state that has the values you want to keep")
            .of_tensor(name);
      }
      return std::string();
    });
  }

  // A step's map whose failure is told as a replacement where that is what it comes from.
  Steps::Map telling(Steps::Map map) {
    return [this, map = std::move(map)] {
      try {
        return map();
      } catch (const Error& e) {
        const bool may_be =
            e.code() == ErrorCode::kNotFound || e.code() == ErrorCode::kCorrupt || e.code() == ErrorCode::kIo;
        if (may_be && e.cause().empty() && reader_ != nullptr && reader_->was_replaced(&e))
          throw Error(ErrorCode::kConflict, std::string(kReplaced)).in_file(id_);
        throw;
      }
    };
  }

  // Everybody's result to everybody, once the coordinator has seen that all of it is of one checkpoint.
  std::vector<std::string> all_read(const Steps::Map& map,
                                    const std::function<bool(const std::vector<std::string>&)>& is_last) {
    return unpack(steps_.all_reduce("read", telling(map), [&](const std::vector<std::string>& all) {
      if (is_last(all) && reader().was_replaced(nullptr))
        throw Error(ErrorCode::kConflict, std::string(kReplaced)).in_file(id_);
      return pack(all);
    }));
  }

  static int coordinator_of(const LoadOptions& options, const Group& group) {
    if (group.size() == 1) return 0;
    if (options.coordinator_rank >= 0 && options.coordinator_rank < group.size())
      return options.coordinator_rank;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the coordinator is rank {} of a group of {}",
                                                         options.coordinator_rank, group.size()));
  }

  std::vector<std::string> warnings() {
    return steps_.is_coordinator() ? reader().warnings() : std::vector<std::string>();
  }

  StorageReader& reader() {
    if (reader_ == nullptr) {
      std::shared_ptr<const FileSystem> files = options_.files;
      if (files == nullptr) files = file_system_of(id_, {.follow_links = options_.read.follow_links});
      own_reader_ = dcp_reader(std::move(files), options_.read);
      reader_ = own_reader_.get();
    }
    return *reader_;
  }

  // Whether no rank's plan depends on another's: the same on all ranks, as their options are. Asked between
  // steps, where a failure would be one rank's alone: so our own reader, whose plans do not, is not opened.
  bool plans_alone() const {
    if (steps_.size() == 1) return true;
    return (options_.reader == nullptr || options_.reader->plans_alone()) && planner_.plans_alone();
  }

  LoadPlan local_plan() {
    ReaderRole role;
    role.rank = steps_.rank();
    role.world_size = steps_.size();
    role.is_coordinator = steps_.is_coordinator();
    role.progress = options_.progress;
    role.deadline = steps_.deadline();
    metadata_ = &reader().set_up_storage_reader(std::exchange(description_, {}), role);
    CAIRN_POINT("load.before_plan");
    if (std::exchange(set_up_, true)) planner_.start_again();
    planner_.set_up_planner(state_(), metadata_, steps_.is_coordinator());
    return reader().prepare_local_plan(planner_.create_local_plan());
  }

  std::vector<LoadPlan> global_plan(std::vector<LoadPlan> all) {
    const std::size_t ranks = all.size();
    all = reader().prepare_global_plan(planner_.create_global_plan(std::move(all)));
    if (all.size() == ranks) return all;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the planner made {} plans for {} ranks", all.size(), ranks));
  }

  void make_plan() {
    if (plans_alone()) {
      steps_.all_gather("plan", telling([&] {
                          plan_ = local_plan();
                          if (steps_.size() == 1) plan_ = std::move(global_plan({std::move(plan_)}).front());
                          return std::string();
                        }));
      return;
    }
    const int ranks = steps_.size();
    const std::string mine = steps_.reduce_scatter(
        "plan", telling([&] { return encode_load_plan(local_plan(), steps_.rank(), ranks); }),
        [&](std::vector<std::string> all) {
          std::vector<LoadPlan> plans;
          for (int rank = 0; rank < ranks; ++rank)
            plans.push_back(decode_load_plan(as_bytes(all[static_cast<std::size_t>(rank)]), rank, ranks));
          plans = global_plan(std::move(plans));
          for (int rank = 0; rank < ranks; ++rank)
            all[static_cast<std::size_t>(rank)] =
                encode_load_plan(plans[static_cast<std::size_t>(rank)], rank, ranks);
          return all;
        });
    answer_ = mine;
  }

  void read() {
    const auto any_shared = [](const std::vector<std::string>& shares) {
      return std::any_of(shares.begin(), shares.end(), [](const std::string& s) { return !s.empty(); });
    };
    const auto read_own = [&] {
      if (!plans_alone()) plan_ = decode_load_plan(as_bytes(answer_), steps_.rank(), steps_.size());
      answer_ = {};
      plan_ = planner_.finish_plan(std::move(plan_));
      const bool shared = !plan_.shared.empty();
      CAIRN_POINT("load.before_read");
      reader().read_data(shared ? SharedReads::without_shared(plan_) : plan_, planner_, report_);
      CAIRN_POINT("load.after_read");
      return std::string(shared ? "s" : "");
    };
    if (any_shared(all_read(read_own, std::not_fn(any_shared)))) exchange();
  }

  // What one rank sends in a round: what all send must fit into everybody's memory, twice.
  std::uint64_t round_bytes() const {
    const std::uint64_t share = options_.read.memory_budget / 4 / static_cast<std::uint64_t>(steps_.size());
    return std::clamp(share, kLeastRound, kMostRound);
  }

  // What arrived in one round is put in its place in the next, so that its failures reach all ranks.
  void exchange() {
    std::optional<SharedReads> shared;
    std::vector<std::string> arrived;
    const auto receive = [&] {
      for (std::size_t rank = 0; rank < arrived.size(); ++rank)
        if (rank != static_cast<std::size_t>(steps_.rank()))
          shared->receive(std::string_view(arrived[rank]).substr(1));
      arrived.clear();
    };
    for (bool more = true; more;) {
      arrived = steps_.all_gather("read", telling([&] {
                                    if (!shared) {
                                      shared.emplace(plan_, steps_.rank(), *metadata_, reader(), planner_,
                                                     options_.read, round_bytes(), report_);
                                    }
                                    CAIRN_POINT("load.before_receive");
                                    receive();
                                    std::string pieces = shared->next_round();
                                    return (shared->has_more() ? "m" : ".") + std::move(pieces);
                                  }));
      for (const std::string& message : arrived)
        if (message.empty()) throw Error(ErrorCode::kCorrupt, "a message between ranks ends too early");
      more = std::any_of(arrived.begin(), arrived.end(), [](const std::string& m) { return m[0] == 'm'; });
    }
    const auto complete = [&] {
      receive();
      shared->require_complete();
      return std::string();
    };
    all_read(complete, [](const auto&) { return true; });
  }

  std::function<StateDict&()> state_;
  const std::string& id_;
  const LoadOptions& options_;
  Steps steps_;
  LoadPlanner& planner_;
  StorageReader* reader_;
  std::unique_ptr<StorageReader> own_reader_;
  ReadReport own_report_;
  ReadReport& report_;
  std::string description_;
  const Metadata* metadata_ = nullptr;
  bool set_up_ = false;  // the planner was
  LoadPlan plan_;
  std::string answer_;                 // the coordinator's: this rank's part of the global plan
  std::set<std::string> overwritten_;  // entries that checkpoints which were replaced have filled
};

LoadResult run(std::function<StateDict&()> state, const std::string& id, const LoadOptions& options,
               LoadPlanner& planner, const std::function<void()>& finish = {}) {
  const std::unique_ptr<Group> solo =
      options.group == nullptr || options.no_dist ? solo_group() : std::unique_ptr<Group>();
  return Loading(std::move(state), id, options, solo ? *solo : *options.group, planner).run(finish);
}

LoadResult run_planned(std::function<StateDict&()> state, const std::string& id, const LoadOptions& options,
                       const std::function<void()>& finish = {}) {
  return with_typed_errors([&] {
    if (options.planner != nullptr) return run(std::move(state), id, options, *options.planner, finish);
    DefaultLoadPlanner planner(options.plan);
    return run(std::move(state), id, options, planner, finish);
  });
}

}  // namespace

LoadResult load(StateDict& state, const std::string& id, const LoadOptions& options) {
  return run_planned([&]() -> StateDict& { return state; }, id, options, options.finish);
}

StateDict load_into_new(const std::string& id, const std::optional<std::vector<std::string>>& keys,
                        const LoadOptions& options) {
  if (options.planner != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "load_into_new makes the state itself and takes no planner; load() takes one");
  }
  return with_typed_errors([&] {
    StateDict state;
    EmptyStateDictLoadPlanner planner(keys, options.plan);
    run([&]() -> StateDict& { return state; }, id, options, planner);
    return state;
  });
}

LoadResult load(AppState& state, const std::string& id, const LoadOptions& options) {
  std::vector<std::pair<std::string, std::variant<Value, Stateful*>>*> parts;
  for (auto& part : state.parts_) parts.push_back(&part);
  std::sort(parts.begin(), parts.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  StateDict expanded;
  const auto expand = [&]() -> StateDict& {
    for (const auto* part : parts) {
      Stateful* const* stateful = std::get_if<Stateful*>(&part->second);
      expanded.set(part->first,
                   stateful != nullptr ? Value((*stateful)->state_dict()) : std::get<Value>(part->second));
    }
    return expanded;
  };
  const auto give_back = [&] {
    for (auto* part : parts) {
      Value* loaded = expanded.find(Key(part->first));
      if (Stateful** stateful = std::get_if<Stateful*>(&part->second)) {
        (*stateful)->load_state_dict(loaded->get<Dict>());
      } else {
        part->second = std::move(*loaded);
      }
    }
    if (options.finish) options.finish();
  };
  return run_planned(expand, id, options, give_back);
}

}  // namespace cairn
