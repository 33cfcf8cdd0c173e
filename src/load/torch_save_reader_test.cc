#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cairn/cairn.h"
#include "cairn/torch_save.h"
#include "format/torch_file.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/states.h"

namespace cairn {
namespace {

// What one process saved with torch.save.
void write_file(const std::string& path, int version) {
  StringSink sink;
  write_torch_file(sink, Value(whole_trainer_state(version)));
  std::ofstream(path, std::ios::binary) << sink.text;
}

class TorchSave : public testing::TestWithParam<FileReads> {
 protected:
  TestFolder folder;
  const std::string path = folder / "weights.pt";
};

TEST_P(TorchSave, IsLoadedOnAnyNumberOfRanksInAnyCut) {
  write_file(path, 5);
  for (const int ranks : {1, 2, 4}) {
    for (const bool by_columns : {false, true}) {
      run_ranks(ranks, [&](Group& group) {
        StateDict state = trainer_state(group.rank(), ranks, -1, by_columns);
        const auto reader = torch_save_reader(path, {.who = GetParam(), .read = {.memory_budget = 64 << 10}});
        LoadOptions options;
        options.group = &group;
        options.reader = reader.get();
        const LoadResult result = load(state, path, options);
        EXPECT_EQ(Value(state), Value(trainer_state(group.rank(), ranks, 5, by_columns)));
        const bool reads = GetParam() == FileReads::kEveryRank || group.rank() == 0;
        EXPECT_EQ(result.read.needed > 0, reads);
      });
    }
  }
}

TEST_P(TorchSave, RanksMayWantDifferentThings) {
  write_file(path, 5);
  run_ranks(3, [&](Group& group) {
    StateDict state;  // the coordinator wants nothing, the others not the same
    if (group.rank() == 1) state.set("model", Dict{{"b", Value(numbered({24}, 0))}});
    if (group.rank() == 2) state.set("step", Value(0));
    const auto reader = torch_save_reader(path, {.who = GetParam()});
    LoadOptions options;
    options.group = &group;
    options.reader = reader.get();
    DynamicMetaLoadPlanner planner;
    options.planner = &planner;
    load(state, path, options);
    StateDict expected;
    if (group.rank() == 1) expected.set("model", Dict{{"b", Value(numbered({24}, 6))}});
    if (group.rank() == 2) expected.set("step", Value(5));
    EXPECT_EQ(Value(state), Value(expected));
  });
}

TEST(TorchSaveByTheCoordinator, OnlyTheReaderNeedsTheFile) {
  const TestFolder folder;
  const std::string path = folder / "weights.pt";
  write_file(path, 5);
  run_ranks(2, [&](Group& group) {
    StateDict state = trainer_state(group.rank(), 2, -1);
    const auto reader =
        torch_save_reader(group.rank() == 0 ? path : folder / "not here", {.who = FileReads::kCoordinator});
    LoadOptions options;
    options.group = &group;
    options.reader = reader.get();
    load(state, path, options);
    EXPECT_EQ(Value(state), Value(trainer_state(group.rank(), 2, 5)));
  });
}

TEST_P(TorchSave, TroubleReachesAllRanks) {
  write_file(path, 5);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  run_ranks(2, [&](Group& group) {
    StateDict state = trainer_state(group.rank(), 2, -1);
    const auto reader = torch_save_reader(path, {.who = GetParam()});
    LoadOptions options;
    options.group = &group;
    options.reader = reader.get();
    const Error e = error_of([&] { load(state, path, options); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << e.what();
    EXPECT_NE(std::string(e.what()).find("weights.pt"), std::string::npos) << e.what();
  });
}

TEST_P(TorchSave, ShapesThatDoNotFitAreNamed) {
  write_file(path, 5);
  StateDict state;
  state.set("model", Dict{{"b", Value(numbered({25}, 0))}});
  const auto reader = torch_save_reader(path, {.who = GetParam()});
  DynamicMetaLoadPlanner planner;
  LoadOptions options;
  options.reader = reader.get();
  options.planner = &planner;
  const Error e = error_of([&] { load(state, path, options); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(std::string(e.what()).find("model.b"), std::string::npos) << e.what();
}

INSTANTIATE_TEST_SUITE_P(Ways, TorchSave, testing::Values(FileReads::kEveryRank, FileReads::kCoordinator),
                         [](const auto& way) {
                           return way.param == FileReads::kEveryRank ? "EveryRank" : "Coordinator";
                         });

}  // namespace
}  // namespace cairn
