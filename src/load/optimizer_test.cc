#include "cairn/optimizer.h"

#include <gtest/gtest.h>

#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/states.h"

namespace cairn {
namespace {

const Shape kWeight{10, 6};
const Shape kBias{3};

// Two by two ranks: rows over the first dimension of the mesh, columns over the second.
MeshLayout grid() { return {{2, 2}, {Placement::shard(0), Placement::shard(1)}}; }

// What a trainer with Adam saves: its model, and two numbers and two tensors for each parameter.
StateDict adam_state(const MeshLayout& layout, int rank) {
  const auto moments = [&](const Shape& shape, int seed, const MeshLayout& cut) {
    return Dict{{"step", Value(numbered({}, seed))},
                {"exp_avg", part_of(numbered(shape, seed + 1), cut, rank)},
                {"exp_avg_sq", part_of(numbered(shape, seed + 2), cut, rank)}};
  };
  const MeshLayout rows{{layout.mesh.size()}, {Placement::shard(0)}};
  StateDict state;
  state.set("model", Dict{{"net.w", part_of(numbered(kWeight, 1), layout, rank)}});
  state.set(
      "optimizer",
      Dict{{"state", Dict{{"net.w", moments(kWeight, 10, layout)}, {"net.b", moments(kBias, 20, rows)}}},
           {"param_groups", Value(List{Value(Dict{{"lr", Value(0.5)}, {"name", Value("all")}})})}});
  return state;
}

class Optimizer : public testing::Test {
 protected:
  TestFolder folder;
  const std::string path = folder / "step-1";

  void SetUp() override {
    run_ranks(4, [&](Group& group) { save(adam_state(grid(), group.rank()), path, {.group = &group}); });
  }

  static StateDict load_all(Group& group, const std::string& path, OptimizerOptions options = {},
                            const std::string& key = "optimizer") {
    options.load.group = &group;
    return load_sharded_optimizer_state_dict(key, path, options);
  }
};

const Value& at(const Value& state, std::initializer_list<const char*> steps) {
  const Value* found = &state;
  for (const char* step : steps) found = found->get<Dict>().find(Key(step));
  return *found;
}

TEST_F(Optimizer, IsCutByRowsWhenNothingIsSaid) {
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Group& group) {
      const Value state(load_all(group, path));
      EXPECT_EQ(state.get<Dict>().size(), 1U);  // the model is not in it
      const auto& average = at(state, {"optimizer", "state", "net.w", "exp_avg"});
      EXPECT_EQ(average, part_of(numbered(kWeight, 11), rows_over(ranks), group.rank()));
      EXPECT_EQ(at(state, {"optimizer", "state", "net.b", "exp_avg_sq"}),
                part_of(numbered(kBias, 22), rows_over(ranks), group.rank()));
      EXPECT_EQ(at(state, {"optimizer", "state", "net.w", "step"}), Value(numbered({}, 10)));
      const Value groups(List{Value(Dict{{"lr", Value(0.5)}, {"name", Value("all")}})});
      EXPECT_EQ(at(state, {"optimizer", "param_groups"}), groups);
    });
  }
}

TEST_F(Optimizer, FollowsTheLayoutsOfItsParameters) {
  run_ranks(2, [&](Group& group) {
    OptimizerOptions options;
    options.parameters["net.w"] = columns_over(2);
    options.parameters["net.b"] = std::vector<Box>{{{group.rank()}, {2}}};  // a row that both have
    const Value state(load_all(group, path, options));
    EXPECT_EQ(at(state, {"optimizer", "state", "net.w", "exp_avg"}),
              part_of(numbered(kWeight, 11), columns_over(2), group.rank()));
    const auto& bias = at(state, {"optimizer", "state", "net.b", "exp_avg"}).get<ShardedTensor>();
    const Tensor expected = Tensor::empty(DType::kInt32, {2});
    copy(numbered(kBias, 21).view().narrow(bias.shards.at(0).box), expected.view());
    EXPECT_EQ(Value(bias.shards.at(0).data), Value(expected));
  });
}

TEST_F(Optimizer, ReadsOnlyItsOwnShare) {
  run_ranks(4, [&](Group& group) {
    ReadReport report;
    OptimizerOptions options;
    options.parameters = {{"net.w", grid()}};
    options.cut_unknown = true;
    options.load.report = &report;
    const Value state(load_all(group, path, options));
    EXPECT_EQ(at(state, {"optimizer", "state", "net.w", "exp_avg"}),
              part_of(numbered(kWeight, 11), grid(), group.rank()));
    for (const std::string& name : report.written) EXPECT_EQ(name.substr(0, 10), "optimizer.");
  });
}

TEST_F(Optimizer, SaysWhichKeysThereAre) {
  const Error e = error_of([&] { load_sharded_optimizer_state_dict("optim", path); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_NE(std::string(e.what()).find("there are: 'model', 'optimizer'"), std::string::npos) << e.what();
}

TEST_F(Optimizer, RefusesLayoutsThatDoNotFit) {
  OptimizerOptions options;
  options.parameters = {{"net.w", std::vector<Box>{{{8, 0}, {4, 6}}}}};
  Error e = error_of([&] { load_sharded_optimizer_state_dict("optimizer", path, options); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(std::string(e.what()).find("optimizer.state.net.w.exp_avg"), std::string::npos) << e.what();

  options.parameters = {{"net.w", columns_over(1)}};
  e = error_of([&] { load_sharded_optimizer_state_dict("optimizer", path, options); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_NE(std::string(e.what()).find("'net.b'"), std::string::npos) << e.what();
}

}  // namespace
}  // namespace cairn
