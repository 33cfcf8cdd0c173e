// Checkpoints that are overwritten while they are loaded.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <string>

#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/hugging_face.h"
#include "testing/dcp.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/forwarding.h"
#include "testing/hugging_face.h"
#include "testing/states.h"

namespace cairn {
namespace {

constexpr int kLoaders = 4;

// Calls somebody when the plan is made and nothing is read yet.
class Interrupted final : public DefaultLoadPlanner {
 public:
  explicit Interrupted(std::function<void()> before_read, LoadPlannerOptions options = {})
      : DefaultLoadPlanner(options), before_read_(std::move(before_read)) {}
  LoadPlan finish_plan(LoadPlan central) override {
    before_read_();
    return DefaultLoadPlanner::finish_plan(std::move(central));
  }

 private:
  std::function<void()> before_read_;
};

class Overwritten : public testing::Test {
 protected:
  TestFolder folder;
  const std::string path = folder / "step-1";

  void save_on(int ranks, int version, bool collectives = true) {
    run_ranks(ranks, [&](Group& group) {
      SaveOptions options;
      options.group = &group;
      options.use_collectives = collectives;
      options.write.durable = false;
      save(trainer_state(group.rank(), ranks, version), path, options);
    });
  }

  // Loads on four ranks; rank `who` overwrites the checkpoint each of the first `times` times that it is
  // about to read. Every rank must end with `version`.
  void load_interrupted(int who, int times, const std::function<void(int)>& overwrite, int version,
                        ReplicaReads replicas = ReplicaReads::kReadAll) {
    run_ranks(kLoaders, [&](Group& group) {
      int done = 0;
      const auto before_read = [&] {
        if (group.rank() == who && done < times) overwrite(++done);
      };
      LoadPlannerOptions plan;
      plan.replicas = replicas;
      Interrupted planner(before_read, plan);
      StateDict state = trainer_state(group.rank(), kLoaders, -1);
      const LoadResult result = load(state, path, {.group = &group, .planner = &planner});
      EXPECT_EQ(Value(state), Value(trainer_state(group.rank(), kLoaders, version)));
      EXPECT_EQ(result.read.restarts, times);
    });
  }
};

TEST_F(Overwritten, ALoadGetsOneVersionOnAllRanks) {
  for (const int who : {0, 2}) {
    for (const ReplicaReads replicas : {ReplicaReads::kReadAll, ReplicaReads::kReadOnce}) {
      save_on(2, 1);
      load_interrupted(
          who, 1, [&](int) { save_on(3, 2); }, 2, replicas);
    }
  }
}

TEST_F(Overwritten, ALoadBeginsAgainFiveTimes) {
  save_on(2, 1);
  load_interrupted(
      1, 5, [&](int n) { save_on(1, 1 + n); }, 6);
}

TEST_F(Overwritten, ALoadGivesUpTheSixthTime) {
  save_on(2, 1);
  std::atomic<int> told = 0;
  run_ranks(kLoaders, [&](Group& group) {
    int done = 0;
    Interrupted planner([&] {
      if (group.rank() == 1) save_on(1, 2 + done++);
    });
    StateDict state = trainer_state(group.rank(), kLoaders, -1);
    const Error error = error_of([&] { load(state, path, {.group = &group, .planner = &planner}); });
    EXPECT_EQ(error.code(), ErrorCode::kConflict) << error.what();
    EXPECT_TRUE(mentions(error, path)) << error.what();
    if (group.rank() == 1) {
      EXPECT_EQ(done, 6);
    }
    ++told;
  });
  EXPECT_EQ(told, kLoaders);
}

TEST_F(Overwritten, RanksThatSavedEachForItselfAreReplacedToo) {
  save_on(4, 1, false);
  load_interrupted(
      3, 1, [&](int) { save_on(2, 2); }, 2);
  save_on(4, 3, false);
  load_interrupted(
      1, 1, [&](int n) { save_on(4, 3 + n, false); }, 4);
}

// Does something before files of a directory are opened, or before it is listed.
struct Watched final : ForwardingFileSystem {
  using ForwardingFileSystem::ForwardingFileSystem;
  std::function<void(std::string_view)> before_open = [](std::string_view) {};
  std::function<void()> before_list = [] {};
  std::shared_ptr<const ByteSource> open(std::string_view name) const override {
    before_open(name);
    return inner_.open(name);
  }
  std::vector<FileEntry> entries(std::string_view folder) const override {
    before_list();
    return inner_.entries(folder);
  }
};

// What each of two ranks saves for itself, and what one process finds of both.
StateDict version_of_rank(int rank, int version) {
  StateDict state;
  state.set("version" + std::to_string(rank), Value(version));
  return state;
}

TEST_F(Overwritten, RanksThatSavedEachForItselfAreAllOfOneVersion) {
  const auto save_both = [&](int version) {
    run_ranks(2, [&](Group& group) {
      SaveOptions options;
      options.group = &group;
      options.use_collectives = false;
      options.write.durable = false;
      save(version_of_rank(group.rank(), version), path, options);
    });
  };
  for (const Verify verify : {Verify::kUsual, Verify::kNone}) {
    for (const char* const name : {"__0.metadata", "__1.metadata"}) {
      for (int nth = 1; nth <= 3; ++nth) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(nth));
        save_both(1);
        const auto inner = posix_file_system(path);
        const auto files = std::make_shared<Watched>(*inner);
        int opened = 0;
        files->before_open = [&](std::string_view opening) {
          if (opening == name && ++opened == nth) save_both(2);
        };
        const auto reader = dcp_reader(files, {.verify = verify});
        StateDict state;
        for (const char* key : {"version0", "version1"}) state.set(key, Value(0));
        load(state, path, {.reader = reader.get()});
        EXPECT_EQ(*state.find("version0"), *state.find("version1"));
      }
    }
  }
}

TEST_F(Overwritten, ACheckpointOfAllThatHasJustComeIsNotTakenForRanksThatAreMissing) {
  save_on(2, 1, false);
  const auto inner = posix_file_system(path);
  const auto files = std::make_shared<Watched>(*inner);
  bool done = false;
  files->before_list = [&] {
    if (std::exchange(done, true)) return;
    const std::string left = read_all(*inner->open("__1.metadata"));
    save_on(1, 2);
    put_file(*inner, "__1.metadata", left);
  };
  const auto reader = dcp_reader(files);
  const StateDict state = load_into_new(path, std::nullopt, {.reader = reader.get()});
  EXPECT_TRUE(done);
  EXPECT_EQ(Value(state), Value(whole_trainer_state(2)));
}

TEST_F(Overwritten, ANewStateIsMadeAnew) {
  save_on(2, 1);
  bool done = false;
  const auto inner = posix_file_system(path);
  const auto files = std::make_shared<Watched>(*inner);
  files->before_open = [&](std::string_view name) {
    if (name.ends_with(".distcp") && !std::exchange(done, true)) save_on(1, 2);
  };
  const auto reader = dcp_reader(files, {.threads = 1});
  const StateDict state = load_into_new(path, std::nullopt, {.reader = reader.get()});
  EXPECT_TRUE(done);
  EXPECT_EQ(Value(state), Value(whole_trainer_state(2)));
}

// An object may be a dict in the checkpoint and something else in the state: what arrived of a checkpoint
// that is gone must not change how the state is cut.
TEST_F(Overwritten, ObjectsOfTheReplacedOneAreTakenBack) {
  StateDict saved;
  saved.set("config", Value(Dict{{"a", Value(1)}}));
  saved.set("w", Value(numbered({4}, 1)));
  DefaultSavePlanner whole({.flatten_state_dict = false});
  save(saved, path, {.planner = &whole});
  class Planner final : public DefaultLoadPlanner {
   public:
    using DefaultLoadPlanner::DefaultLoadPlanner;
    std::function<void()> when_loaded;
    void load_bytes(const ReadItem& item, Value value) override {
      DefaultLoadPlanner::load_bytes(item, std::move(value));
      when_loaded();
    }
  };
  Planner planner;
  bool done = false;
  planner.when_loaded = [&] {
    if (std::exchange(done, true)) return;
    saved.set("config", Value(Dict{{"a", Value(2)}}));
    DefaultSavePlanner again({.flatten_state_dict = false});
    save(saved, path, {.planner = &again});
    throw Error(ErrorCode::kNotFound, "gone");
  };
  StateDict state;
  state.set("config", Value());
  state.set("w", Value(Tensor::zeros(DType::kInt32, {4})));
  const LoadResult result = load(state, path, {.planner = &planner});
  EXPECT_EQ(result.read.restarts, 1);
  EXPECT_EQ(*state.find("config"), Value(Dict{{"a", Value(2)}}));
}

TEST_F(Overwritten, WhatOnlyTheReplacedOneHadIsNotMixedIn) {
  StateDict saved;
  saved.set("gone", Value(numbered({4}, 1)));
  saved.set("kept", Value(numbered({4}, 1)));
  save(saved, path);
  class Planner final : public DefaultLoadPlanner {
   public:
    using DefaultLoadPlanner::DefaultLoadPlanner;
    std::function<void()> when_done;
    void commit_tensor(const ReadItem& item, const TensorView&) override {
      if (item.dest_index.fqn == "gone") when_done();
    }
  };
  Planner planner({.allow_partial_load = true});
  planner.when_done = [&] {
    StateDict less;
    less.set("kept", Value(numbered({4}, 2)));
    save(less, path);
    throw Error(ErrorCode::kIo, "stale");
  };
  StateDict state;
  for (const char* name : {"gone", "kept"}) state.set(name, Value(Tensor::zeros(DType::kInt32, {4})));
  ReadReport report;
  const Error error = error_of([&] { load(state, path, {.planner = &planner, .report = &report}); });
  EXPECT_EQ(error.code(), ErrorCode::kConflict) << error.what();
  EXPECT_TRUE(mentions(error, "'gone'")) << error.what();
  EXPECT_EQ(report.written, (std::vector<std::string>{"gone", "kept"}));
}

TEST_F(Overwritten, WhatWasWrittenBeforeTheLoadBeganAgainIsReportedWhenItFails) {
  const auto state_with = [](const char* name, int version) {
    StateDict state;
    state.set(name, Value(numbered({4}, version)));
    return state;
  };
  save(state_with("early", 1), path);
  class Planner final : public DefaultLoadPlanner {
   public:
    using DefaultLoadPlanner::DefaultLoadPlanner;
    std::function<void()> when_done;
    void commit_tensor(const ReadItem& /*item*/, const TensorView&) override { when_done(); }
  };
  Planner planner({.allow_partial_load = true});
  int times = 0;
  planner.when_done = [&] {
    if (++times > 1) throw Error(ErrorCode::kInvalidArgument, "my own mistake");
    save(state_with("late", 2), path);
    throw Error(ErrorCode::kIo, "stale");
  };
  StateDict state;
  for (const char* name : {"early", "late"}) state.set(name, Value(Tensor::zeros(DType::kInt32, {4})));
  ReadReport report;
  const Error error = error_of([&] { load(state, path, {.planner = &planner, .report = &report}); });
  EXPECT_TRUE(mentions(error, "my own mistake")) << error.what();
  EXPECT_EQ(report.restarts, 1);
  EXPECT_EQ(report.written, (std::vector<std::string>{"early", "late"}));
}

TEST_F(Overwritten, AFailureOfOnesOwnIsNotTriedAgain) {
  save_on(2, 1);
  std::atomic<int> plans = 0;
  run_ranks(2, [&](Group& group) {
    Interrupted planner([&] {
      if (group.rank() == 0) save_on(1, 2);
      if (group.rank() == 1) throw Error(ErrorCode::kInvalidArgument, "my own mistake");
    });
    StateDict state = trainer_state(group.rank(), 2, -1);
    const Error error = error_of([&] { load(state, path, {.group = &group, .planner = &planner}); });
    EXPECT_TRUE(mentions(error, "my own mistake")) << error.what();
    ++plans;
  });
  EXPECT_EQ(plans, 2);
}

TEST_F(Overwritten, AMissingFileOfACheckpointThatStandsIsAnError) {
  save_on(2, 1);
  const auto files = posix_file_system(path);
  for (const FileEntry& entry : files->list())
    if (entry.name.starts_with("__1_")) files->remove(entry.name);
  StateDict state = trainer_state(0, 1, -1);
  ReadReport report;
  EXPECT_EQ(error_of([&] { load(state, path, {.report = &report}); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(report.restarts, 0);
}

// Both saves have files of the same names and sizes.
TEST_F(HfStorage, FilesThatWereReplacedBetweenHeaderAndDataAreReadAgain) {
  save_on(2, 1);
  for (const int who : {0, 1}) {
    run_ranks(2, [&](Group& group) {
      int done = 0;
      Interrupted planner([&] {
        if (group.rank() == who && done++ == 0) save_on(2, 2 + who);
      });
      const auto reader = hf_reader(files);
      StateDict state = model_state(group.rank(), 2, -1);
      const LoadResult result =
          load(state, "", {.group = &group, .planner = &planner, .reader = reader.get()});
      EXPECT_EQ(Value(state), Value(model_state(group.rank(), 2, 2 + who)));
      EXPECT_EQ(result.read.restarts, 1);
    });
  }
}

}  // namespace
}  // namespace cairn
