#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "cairn/planner.h"
#include "plan/wire.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace save_planner_test {

Tensor counting(DType dtype, Shape shape) {
  Tensor tensor = Tensor::zeros(dtype, std::move(shape));
  for (std::size_t i = 0; i < tensor.bytes().size(); ++i) tensor.bytes()[i] = static_cast<std::byte>(i);
  return tensor;
}

StateDict small_state() {
  StateDict state;
  state.set("w", Value(counting(DType::kUInt8, {4, 2})));
  state.set("step", Value(3));
  return state;
}

SavePlannerOptions caching() {
  SavePlannerOptions options;
  options.enable_plan_caching = true;
  return options;
}

// The planners of a world that saves together, rank 0 coordinating.
class World {
 public:
  explicit World(int ranks, const SavePlannerOptions& options = caching()) {
    for (int rank = 0; rank < ranks; ++rank) {
      planners.push_back(std::make_unique<DefaultSavePlanner>(options));
      planners.back()->set_world_size(ranks);
    }
  }

  std::vector<SavePlan> local_plans(const std::vector<StateDict>& states) {
    std::vector<SavePlan> all;
    for (std::size_t rank = 0; rank < planners.size(); ++rank) {
      planners[rank]->set_up_planner(states[rank], nullptr, rank == 0);
      all.push_back(planners[rank]->create_local_plan());
    }
    return all;
  }

  // One save; how many ranks sent their plan, and how many got a new one.
  std::pair<int, int> save(const std::vector<StateDict>& states) {
    std::vector<SavePlan> all = local_plans(states);
    int sent = 0;
    int received = 0;
    for (const SavePlan& plan : all) sent += plan.usable ? 1 : 0;
    GlobalSavePlan global = planners[0]->create_global_plan(std::move(all));
    metadata = global.metadata;
    finished.clear();
    for (std::size_t rank = 0; rank < planners.size(); ++rank) {
      received += global.plans[rank].usable ? 1 : 0;
      finished.push_back(planners[rank]->finish_plan(std::move(global.plans[rank])));
    }
    return {sent, received};
  }

  std::vector<std::unique_ptr<DefaultSavePlanner>> planners;
  std::vector<SavePlan> finished;
  std::shared_ptr<const Metadata> metadata;
};

using Counts = std::pair<int, int>;

TEST(SavePlanner, ResolvesTensorsShardsPiecesAndObjects) {
  StateDict state = small_state();
  ShardedTensor sharded{DType::kUInt8, {8, 2}, {}};
  sharded.shards.push_back({{{4, 0}, {2, 2}}, counting(DType::kUInt8, {2, 2})});
  state.set("s", Value(sharded));
  DefaultSavePlanner planner;
  planner.set_up_planner(state, nullptr, true);

  const Value whole = planner.resolve_data(WriteItem::tensor("w", DType::kUInt8, {4, 2}));
  EXPECT_EQ(whole.get<Tensor>().view().data, state.find("w")->get<Tensor>().view().data);
  const Value piece = planner.resolve_data(WriteItem::shard("w", DType::kUInt8, {4, 2}, {{2, 0}, {1, 2}}));
  EXPECT_EQ(static_cast<int>(*piece.get<Tensor>().view().data), 4);
  const Value shard = planner.resolve_data(WriteItem::shard("s", DType::kUInt8, {8, 2}, {{5, 0}, {1, 2}}));
  EXPECT_EQ(static_cast<int>(*shard.get<Tensor>().view().data), 2);
  EXPECT_EQ(planner.resolve_data(WriteItem::bytes("step")), Value(3));
}

TEST(SavePlanner, PiecesOfASplitTensorOnTwoRanksMakeUpTheWhole) {
  SavePlannerOptions options;
  options.global.split.max_item_bytes = 24;
  World world(2, options);
  StateDict state;
  state.set("w", Value(counting(DType::kUInt8, {11, 7})));
  world.save({state, state});
  Tensor back = Tensor::zeros(DType::kUInt8, {11, 7});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_GT(world.finished[rank].items.size(), 1u);
    for (const WriteItem item : world.finished[rank].items) {
      const Value piece = world.planners[rank]->resolve_data(item);
      copy(piece.get<Tensor>().view(), back.view().narrow(item.tensor_data->chunk));
    }
  }
  EXPECT_EQ(Value(back), *state.find("w"));
}

TEST(SavePlanner, ResolvesFromManyThreadsAtOnce) {
  StateDict state;
  for (int i = 0; i < 50; ++i) state.set("w" + std::to_string(i), Value(i));
  DefaultSavePlanner planner;
  planner.set_up_planner(state, nullptr, true);
  const SavePlan plan = planner.create_local_plan();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < plan.items.size(); ++i) {
        right += planner.resolve_data(plan.items[i]) == Value(static_cast<int>(i)) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
}

TEST(SavePlanner, RefusesItemsThatTheStateDoesNotHold) {
  const StateDict state = small_state();
  DefaultSavePlanner planner;
  planner.set_up_planner(state, nullptr, true);
  EXPECT_EQ(error_of([&] { planner.resolve_data(WriteItem::bytes("x")); }).code(), ErrorCode::kNotFound);
  const WriteItem large = WriteItem::tensor("w", DType::kUInt8, {5, 2});
  EXPECT_EQ(error_of([&] { planner.resolve_data(large); }).code(), ErrorCode::kConflict);
}

TEST(SavePlanner, DoesNotFlattenWhenAskedNotTo) {
  StateDict state;
  state.set("a", Dict{{"b", Value(1)}});
  SavePlannerOptions options;
  options.flatten_state_dict = false;
  DefaultSavePlanner planner(options);
  planner.set_up_planner(state, nullptr, true);
  const SavePlan plan = planner.create_local_plan();
  EXPECT_EQ(plan.items.to_vector(), std::vector<WriteItem>{WriteItem::bytes("a")});
  EXPECT_TRUE(std::holds_alternative<None>(plan.planner_data));
}

TEST(SavePlanner, RefusesAGlobalPlanWithAHole) {
  DefaultSavePlanner planner;
  const Error e = error_of([&] { planner.create_global_plan({plan_of({rows_of("w", 0, 2, 4)})}); });
  EXPECT_TRUE(mentions(e, "Failed to validate global plan")) << e.what();
}

TEST(PlanCache, SendsNothingTwice) {
  World world(3);
  const std::vector<StateDict> states(3, small_state());
  EXPECT_EQ(world.save(states), Counts(3, 3));
  const auto first = world.finished;
  const auto metadata = world.metadata;
  EXPECT_EQ(world.save(states), Counts(0, 0));
  EXPECT_EQ(world.finished, first);
  EXPECT_EQ(world.metadata, metadata);
}

TEST(PlanCache, AnUnchangedPlanIsUnderAKilobyteOnTheWire) {
  World world(2);
  const std::vector<StateDict> states(2, small_state());
  world.save(states);
  EXPECT_LT(encode_local_plan(world.local_plans(states)[1], 1, 2).size(), 1000u);
}

TEST(PlanCache, ResolvesFromTheLiveTensor) {
  World world(1);
  StateDict state = small_state();
  world.save({state});
  StateDict later = small_state();
  world.save({later});
  EXPECT_EQ(world.planners[0]->resolve_data(world.finished[0].items[0]).get<Tensor>().view().data,
            later.find("w")->get<Tensor>().view().data);
}

TEST(PlanCache, SendsOnlyTheRanksThatChanged) {
  World world(3);
  std::vector<StateDict> states(3, small_state());
  for (int rank = 0; rank < 3; ++rank) states[rank].set("own" + std::to_string(rank), Value(1));
  world.save(states);
  states[2].set("new", Value(1));
  EXPECT_EQ(world.save(states), Counts(1, 1));
  EXPECT_EQ(world.finished[2].items.to_vector().back().index.fqn, "new");
  EXPECT_EQ(world.save(states), Counts(0, 0));
}

// A save of `before` and then of `after` by one rank: whether the second was a miss.
bool is_miss(const StateDict& before, const StateDict& after) {
  World world(1);
  world.save({before});
  return world.save({after}).first == 1;
}

StateDict state_of(Value w) {
  StateDict state;
  state.set("w", std::move(w));
  return state;
}

Value sharded(std::int64_t begin, std::int64_t rows) {
  ShardedTensor tensor{DType::kUInt8, {4, 2}, {}};
  tensor.shards.push_back({{{0, 0}, {begin, 2}}, Tensor::zeros(DType::kUInt8, {begin, 2})});
  tensor.shards.push_back({{{begin, 0}, {rows, 2}}, Tensor::zeros(DType::kUInt8, {rows, 2})});
  return tensor;
}

TEST(PlanCache, OtherDataOfTheSameKindIsAHit) {
  EXPECT_FALSE(is_miss(state_of(Tensor::zeros(DType::kInt8, {2})), state_of(counting(DType::kInt8, {2}))));
}
TEST(PlanCache, AChangedDtypeIsAMiss) {
  EXPECT_TRUE(
      is_miss(state_of(Tensor::zeros(DType::kInt8, {2})), state_of(Tensor::zeros(DType::kUInt8, {2}))));
}
TEST(PlanCache, AChangedShapeIsAMiss) {
  EXPECT_TRUE(
      is_miss(state_of(Tensor::zeros(DType::kInt8, {2})), state_of(Tensor::zeros(DType::kInt8, {3}))));
}
TEST(PlanCache, AChangedBoxIsAMiss) {
  EXPECT_TRUE(is_miss(state_of(sharded(2, 2)), state_of(sharded(1, 3))));
}
TEST(PlanCache, AChangedKindIsAMiss) {
  EXPECT_TRUE(is_miss(state_of(Tensor::zeros(DType::kInt8, {2})), state_of(Value(1))));
}
TEST(PlanCache, AChangedPathIsAMiss) {
  StateDict nested;
  nested.set("a", Dict{{"b", Value(1)}});
  StateDict flat;
  flat.set("a.b", Value(1));
  EXPECT_TRUE(is_miss(nested, flat));
}
TEST(PlanCache, AChangedNameIsAMiss) {
  StateDict other;
  other.set("v", Value(1));
  EXPECT_TRUE(is_miss(state_of(Value(1)), other));
}
TEST(PlanCache, AChangedOrderIsAMiss) {
  StateDict ab;
  ab.set("a", Value(1));
  ab.set("b", Value(1));
  StateDict ba;
  ba.set("b", Value(1));
  ba.set("a", Value(1));
  EXPECT_TRUE(is_miss(ab, ba));
}

TEST(PlanCache, AChangedNumberOfRanksIsAMiss) {
  World world(2);
  const std::vector<StateDict> states(3, small_state());
  world.save({states[0], states[1]});
  world.planners.push_back(std::make_unique<DefaultSavePlanner>(caching()));
  for (auto& planner : world.planners) planner->set_world_size(3);
  EXPECT_EQ(world.save(states), Counts(3, 3));
}

TEST(PlanCache, ANumberOfRanksThatNobodyAnnouncedIsAConflict) {
  World world(2);
  const std::vector<StateDict> states(3, small_state());
  world.save({states[0], states[1]});
  world.planners.push_back(std::make_unique<DefaultSavePlanner>(caching()));
  EXPECT_EQ(error_of([&] { world.save(states); }).code(), ErrorCode::kConflict);
}

TEST(PlanCache, BelongsToOnePlanner) {
  World first(1);
  first.save({small_state()});
  World second(1);
  EXPECT_EQ(second.save({small_state()}), Counts(1, 1));
}

TEST(PlanCache, StartsAfreshAfterASaveThatFailed) {
  World world(2);
  std::vector<StateDict> states(2, small_state());
  world.save(states);
  std::vector<StateDict> broken = states;
  ShardedTensor hole{DType::kUInt8, {4}, {}};
  hole.shards.push_back({{{0}, {1}}, Tensor::zeros(DType::kUInt8, {1})});
  broken[1].set("hole", Value(hole));
  EXPECT_EQ(error_of([&] { world.save(broken); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(world.save(states), Counts(2, 2));
  EXPECT_EQ(world.save(states), Counts(0, 0));
}

TEST(PlanCache, NoticesARankWhoseLastTimeWasAnother) {
  World world(2);
  const std::vector<StateDict> states(2, small_state());
  world.save(states);
  std::vector<SavePlan> all = world.local_plans(states);
  all[1].planner_data = Value(Bytes{std::string(16, 'x')});
  const Error e = error_of([&] { world.planners[0]->create_global_plan(std::move(all)); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_EQ(e.rank(), 1);
}

TEST(PlanCache, KeepsTheWritersOldDataUnlessThereIsNew) {
  DefaultSavePlanner planner(caching());
  const StateDict state = small_state();
  const auto save = [&](Value storage_data) {
    planner.set_up_planner(state, nullptr, true);
    std::vector<SavePlan> all;
    all.push_back(planner.create_local_plan());
    GlobalSavePlan global = planner.create_global_plan(std::move(all));
    global.plans[0].storage_data = std::move(storage_data);
    return planner.finish_plan(global.plans[0]).storage_data;
  };
  EXPECT_EQ(save(Value("__0_")), Value("__0_"));
  EXPECT_EQ(save(None{}), Value("__0_"));
  EXPECT_EQ(save(Value("new")), Value("new"));
}

}  // namespace save_planner_test
}  // namespace cairn
