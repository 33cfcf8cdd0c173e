#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "cairn/cairn.h"
#include "testing/dcp.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/states.h"

namespace cairn {
namespace {

void save_on(int ranks, const std::string& path, int version, const SaveOptions& options = {}) {
  run_ranks(ranks, [&](Group& group) {
    SaveOptions mine = options;
    mine.group = &group;
    save(trainer_state(group.rank(), ranks, version), path, mine);
  });
}

class Load : public testing::Test {
 protected:
  TestFolder folder;
  const std::string path = folder / "step-1";

  // Loads on `ranks` ranks into a state full of something else; every rank must end with `version`.
  std::vector<LoadResult> load_on(int ranks, int version, const LoadOptions& options = {},
                                  bool by_columns = false) {
    std::vector<LoadResult> results(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Group& group) {
      StateDict state = trainer_state(group.rank(), ranks, -1, by_columns);
      LoadOptions mine = options;
      mine.group = &group;
      results[static_cast<std::size_t>(group.rank())] = load(state, path, mine);
      EXPECT_EQ(Value(state), Value(trainer_state(group.rank(), ranks, version, by_columns)));
    });
    return results;
  }
};

TEST_F(Load, GetsBackWhatWasSavedOnAnyNumberOfRanks) {
  for (const int savers : {1, 2, 3}) {
    save_on(savers, path, savers);
    for (const int loaders : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("{} -> {}", savers, loaders));
      for (const LoadResult& result : load_on(loaders, savers)) {
        EXPECT_EQ(result.read.unverified, 0U);
        EXPECT_EQ(result.read.read, result.read.verified);
        EXPECT_TRUE(std::is_sorted(result.read.written.begin(), result.read.written.end()));
      }
      load_on(loaders, savers, {}, true);
    }
  }
}

TEST_F(Load, AnyRankMayBeTheCoordinator) {
  save_on(2, path, 3);
  load_on(2, 3, {.coordinator_rank = 1});
}

TEST_F(Load, ReplicasReadOnce) {
  save_on(2, path, 4);
  LoadOptions all, once;
  once.plan.replicas = ReplicaReads::kReadOnce;
  std::uint64_t needed_all = 0, needed_once = 0;
  for (const LoadResult& result : load_on(4, 4, all)) needed_all += result.read.needed;
  std::vector<std::string> written;
  for (const LoadResult& result : load_on(4, 4, once)) {
    needed_once += result.read.needed;
    EXPECT_TRUE(written.empty() || result.read.written == written);
    written = result.read.written;
  }
  EXPECT_LT(needed_once, needed_all);
  EXPECT_TRUE(std::count(written.begin(), written.end(), "step") == 1) << written.size();
}

TEST_F(Load, LargeReplicasTravelInPiecesAndConvert) {
  const Tensor big = numbered({2, 5, 1 << 20}, 3);  // 40 MiB
  StateDict saved;
  saved.set("w", Value(big));
  save(saved, path, {.write = {.durable = false}});
  LoadOptions options;
  options.plan.replicas = ReplicaReads::kReadOnce;
  std::atomic<std::uint64_t> read = 0;
  run_ranks(2, [&](Group& group) {
    const DType dtype = group.rank() == 0 ? DType::kInt32 : DType::kInt64;
    StateDict state;
    state.set("w", Value(Tensor::zeros(dtype, {2, 5, 1 << 20})));
    LoadOptions mine = options;
    mine.group = &group;
    read += load(state, path, mine).read.read;
    Tensor expected = Tensor::empty(dtype, {2, 5, 1 << 20});
    copy(big.view(), expected.view());
    EXPECT_EQ(*state.find("w"), Value(expected));
  });
  EXPECT_LT(read.load(), 50U << 20);
}

TEST_F(Load, RankLocalSavesLoadOnAnyNumberOfRanks) {
  save_on(3, path, 6, {.use_collectives = false});
  load_on(1, 6);
  load_on(2, 6);
}

TEST_F(Load, CompressedCheckpointsLoad) {
  SaveOptions options;
  options.write.transforms = {"zstd"};
  save_on(2, path, 8, options);
  load_on(3, 8);
}

TEST_F(Load, ManySmallFiles) {
  SaveOptions options;
  options.write.files_per_rank = 5;
  save_on(2, path, 9, options);
  load_on(3, 9, {.read = {.verify = Verify::kFull, .threads = 3}});
}

TEST_F(Load, MakesANewState) {
  save_on(2, path, 5);
  const StateDict all = load_into_new(path);
  EXPECT_EQ(*all.find("step"), Value(5));
  const Dict& model = all.find("model")->get<Dict>();
  EXPECT_EQ(*model.find("w"), Value(numbered({37, 24}, 5)));
  const StateDict some = load_into_new(path, std::vector<std::string>{"model.w", "notes"});
  EXPECT_EQ(some.size(), 2U);
  EXPECT_EQ(some.find("model")->get<Dict>().size(), 1U);
  DefaultLoadPlanner planner;
  EXPECT_EQ(error_of([&] { load_into_new(path, std::nullopt, {.planner = &planner}); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST_F(Load, FailsOnAllRanksAlike) {
  save_on(2, path, 1);
  std::mutex mutex;
  std::vector<std::string> told;
  run_ranks(3, [&](Group& group) {
    StateDict state = trainer_state(group.rank(), 3, -1);
    if (group.rank() == 1) state.set("unknown", Value(Tensor::zeros(DType::kFloat32, {2})));
    try {
      load(state, path, {.group = &group});
      ADD_FAILURE() << "loaded what is not there";
    } catch (const CheckpointError& e) {
      EXPECT_EQ(e.failures().size(), 1U);
      EXPECT_TRUE(e.failures().contains(1));
      const std::lock_guard lock(mutex);
      told.emplace_back(e.what());
    }
  });
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0], told[1]);
  EXPECT_EQ(told[0], told[2]);
}

TEST_F(Load, AloneFailsWithTheSameKindOfError) {
  StateDict state = trainer_state(0, 1, 1);
  try {
    load(state, path);
    ADD_FAILURE() << "loaded what is not there";
  } catch (const CheckpointError& e) {
    ASSERT_TRUE(e.failures().contains(0));
    EXPECT_EQ(e.failures().at(0).code(), ErrorCode::kNotFound);
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  }
}

TEST_F(Load, ADamagedFileStopsAllRanksAndTellsWhatWasWritten) {
  save_on(2, path, 1);
  const auto files = posix_file_system(path);
  for (const FileEntry& entry : files->list()) {
    if (entry.name.starts_with("__1_") && entry.size > 0) flip_bit(*files, entry.name, 8 * (entry.size / 2));
  }
  run_ranks(2, [&](Group& group) {
    StateDict state = trainer_state(group.rank(), 2, -1);
    ReadReport report;
    try {
      load(state, path, {.group = &group, .report = &report});
      ADD_FAILURE() << "loaded a damaged file";
    } catch (const CheckpointError& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << e.what();
      EXPECT_NE(std::string(e.what()).find("__1_"), std::string::npos) << e.what();
    }
    EXPECT_GT(report.read, 0U);
  });
}

TEST_F(Load, APlannerOfOnesOwnSeesEveryStep) {
  struct Doubling : DefaultLoadPlanner {
    std::atomic<int> commits = 0;
    int globals = 0;
    void commit_tensor(const ReadItem&, const TensorView&) override { ++commits; }
    std::vector<LoadPlan> create_global_plan(std::vector<LoadPlan> all) override {
      globals += static_cast<int>(all.size());
      return all;
    }
  };
  save_on(2, path, 7);
  run_ranks(2, [&](Group& group) {
    Doubling planner;
    StateDict state = trainer_state(group.rank(), 2, -1);
    load(state, path, {.group = &group, .planner = &planner});
    EXPECT_EQ(Value(state), Value(trainer_state(group.rank(), 2, 7)));
    EXPECT_EQ(planner.globals, group.rank() == 0 ? 2 : 0);
    EXPECT_GE(planner.commits, 4);
  });
}

struct Part : Stateful {
  StateDict mine;
  std::vector<std::string>* order = nullptr;
  std::string name;
  StateDict state_dict() override {
    order->push_back(name);
    return mine;
  }
  void load_state_dict(const StateDict& state) override { mine = state; }
};

TEST_F(Load, StatefulPartsGetTheirStateBack) {
  std::vector<std::string> order;
  Part model, other;
  model.order = other.order = &order;
  model.name = "model", other.name = "data";
  model.mine.set("w", Value(numbered({4, 4}, 1)));
  other.mine.set("epoch", Value(3));
  AppState app;
  app.add("model", model);
  app.add("data", other);
  app.add("step", Value(10));
  save(app, path);
  model.mine.set("w", Value(numbered({4, 4}, 2)));
  other.mine.set("epoch", Value(0));
  AppState again;
  again.add("model", model);
  again.add("data", other);
  again.add("step", Value(0));
  order.clear();
  load(again, path);
  EXPECT_EQ(order, (std::vector<std::string>{"data", "model"}));
  EXPECT_EQ(*model.mine.find("w"), Value(numbered({4, 4}, 1)));
  EXPECT_EQ(*other.mine.find("epoch"), Value(3));
  EXPECT_EQ(*again.find("step"), Value(10));
}

TEST_F(Load, ANewSaveInThePlaceOfAnOldOneIsTheOneThatLoads) {
  save_on(2, path, 1);
  save_on(3, path, 2);
  load_on(2, 2);
}

}  // namespace
}  // namespace cairn
