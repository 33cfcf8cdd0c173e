#include <gtest/gtest.h>

#include "cairn/plan_steps.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace global_plan_test {

PathMap paths(std::initializer_list<std::pair<const char*, Path>> entries) {
  PathMap map;
  for (const auto& [name, path] : entries) map.add(name, path);
  return map;
}

TEST(LocalPlan, HasAnItemPerTensorShardAndObjectInOrder) {
  StateDict state;
  state.set("step", Value(7));
  state.set("model", Dict{{"w", Value(Tensor::zeros(DType::kFloat32, {2, 3}))}});
  ShardedTensor sharded{DType::kInt64, {4}, {}};
  sharded.shards.push_back({{{0}, {1}}, Tensor::zeros(DType::kInt64, {1})});
  sharded.shards.push_back({{{3}, {1}}, Tensor::zeros(DType::kInt64, {1})});
  state.set("s", Value(sharded));
  const SavePlan plan = create_default_local_save_plan(flatten(state));
  const WriteItems want = {WriteItem::bytes("step"), WriteItem::tensor("model.w", DType::kFloat32, {2, 3}),
                           WriteItem::shard("s", DType::kInt64, {4}, {{0}, {1}}),
                           WriteItem::shard("s", DType::kInt64, {4}, {{3}, {1}})};
  EXPECT_EQ(plan.items.to_vector(), want.to_vector());
}

TEST(LocalPlan, RefusesAShardThatIsNotWhatItsBoxSays) {
  ShardedTensor sharded{DType::kInt64, {4}, {}};
  sharded.shards.push_back({{{0}, {2}}, Tensor::zeros(DType::kInt64, {1})});
  const Flattened entries = {{"s", {"s"}, Value(sharded)}};
  const Error e = error_of([&] { create_default_local_save_plan(entries); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "s");
}

TEST(LocalPlan, RefusesATensorThatStillLiesInAFile) {
  const Flattened entries = {{"s", {"s"}, Value(StoredTensor{})}};
  EXPECT_EQ(error_of([&] { create_default_local_save_plan(entries); }).code(), ErrorCode::kUnsupported);
}

TEST(GlobalPlan, PutsChunksInTheOrderOfTheRanksAndWritesTheirPositionsIntoTheItems) {
  const GlobalSavePlan global = create_default_global_save_plan(
      {plan_of({rows_of("w", 2, 4, 4), WriteItem::bytes("x")}), plan_of({rows_of("w", 0, 2, 4)})});
  EXPECT_EQ(global.plans[0].items[0].index.index, 0);
  EXPECT_EQ(global.plans[0].items[1].index.index, std::nullopt);
  EXPECT_EQ(global.plans[1].items[0].index.index, 1);
  ASSERT_EQ(global.metadata->state_dict_metadata.size(), 2u);
  const auto& [name, stored] = global.metadata->state_dict_metadata[0];
  EXPECT_EQ(name, "w");
  const auto& chunks = std::get<TensorStorageMetadata>(stored).chunks;
  EXPECT_EQ(chunks, (std::vector<Box>{{{2, 0}, {2, 4}}, {{0, 0}, {2, 4}}}));
}

TEST(GlobalPlan, LeavesHintsAloneWhenAsked) {
  WriteItem item = rows_of("w", 0, 4, 4);
  item.index.index = 9;
  EXPECT_EQ(create_default_global_save_plan({plan_of({item})}, false).plans[0].items[0].index.index, 9);
}

TEST(GlobalPlan, TakesThePathOfTheLowestRankAndTheOrderOfTheLast) {
  std::vector<SavePlan> all(2);
  all[0].planner_data = paths({{"a", {"low"}}, {"b", {"b"}}});
  all[1].planner_data = paths({{"c", {"c"}}, {"a", {"high"}}});
  const GlobalSavePlan global = create_default_global_save_plan(all);
  EXPECT_EQ(std::get<PathMap>(global.metadata->planner_data),
            paths({{"c", {"c"}}, {"a", {"low"}}, {"b", {"b"}}}));
}

TEST(GlobalPlan, HasNoPathsWhenNoPlanHasThem) {
  EXPECT_TRUE(
      std::holds_alternative<None>(create_default_global_save_plan({SavePlan{}}).metadata->planner_data));
}

TEST(GlobalPlan, RefusesAnObjectThatTwoRanksWrite) {
  const Error e = error_of([] {
    create_default_global_save_plan({plan_of({WriteItem::bytes("x")}), plan_of({WriteItem::bytes("x")})});
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "x");
  EXPECT_EQ(e.rank(), 1);
}

TEST(GlobalPlan, RefusesANameThatIsAnObjectOnOneRankAndAShardOnAnother) {
  const Error e = error_of([] {
    create_default_global_save_plan({plan_of({WriteItem::bytes("x")}), plan_of({rows_of("x", 0, 4, 4)})});
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.rank(), 1);
}

TEST(DeltaPlans, AreTheCachedOnesWhereNothingChanged) {
  const std::vector<SavePlan> cached = {plan_of({WriteItem::bytes("a")}), plan_of({WriteItem::bytes("b")})};
  const SavePlan fresh = plan_of({WriteItem::bytes("c")});
  const auto merged = merge_delta_local_plans(cached, {SavePlan::unchanged(), fresh});
  EXPECT_EQ(merged, (std::vector<SavePlan>{cached[0], fresh}));
}

TEST(DeltaPlans, AreAConflictWhenTheNumberOfRanksChanged) {
  EXPECT_EQ(error_of([] {
              merge_delta_local_plans({SavePlan{}}, {SavePlan{}, SavePlan{}});
            }).code(),
            ErrorCode::kConflict);
}

TEST(ComparePlans, LooksAtDtypesAndPathsToo) {
  const SavePlan plan = plan_of({rows_of("w", 0, 2, 4)});
  EXPECT_TRUE(compare_save_plans(plan, plan_of({rows_of("w", 0, 2, 4)})));
  WriteItem half = rows_of("w", 0, 2, 4);
  half.tensor_data->properties.dtype = DType::kFloat16;
  EXPECT_FALSE(compare_save_plans(plan, plan_of({half})));
  SavePlan moved = plan;
  moved.planner_data = paths({{"w", {"w"}}});
  EXPECT_FALSE(compare_save_plans(plan, moved));
  EXPECT_FALSE(compare_save_plans(plan, SavePlan::unchanged()));
}

}  // namespace global_plan_test
}  // namespace cairn
