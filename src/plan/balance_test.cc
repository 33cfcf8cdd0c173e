#include <gtest/gtest.h>

#include <numeric>

#include "cairn/plan_steps.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace balance_test {

using Names = std::vector<std::string>;

WriteItem tensor_of(std::string fqn, std::int64_t elements) {
  return WriteItem::tensor(std::move(fqn), DType::kUInt8, {elements});
}

TEST(Dedup, LeavesReplicasToTheLowestRankWhenAsked) {
  const auto plans =
      dedup_save_plans({plan_of({tensor_of("a", 8)}), plan_of({tensor_of("a", 8), tensor_of("b", 4)}),
                        plan_of({tensor_of("b", 4)})},
                       DedupRule::kLowestRank);
  EXPECT_EQ(names_of(plans), (Names{"a", "b", ""}));
}

TEST(Dedup, SpreadsReplicasOverTheRanksThatHoldThem) {
  const SavePlan all = plan_of({tensor_of("a", 8), tensor_of("b", 8), tensor_of("c", 8), tensor_of("d", 8)});
  for (const DedupRule rule : {DedupRule::kBalanced, DedupRule::kDcpBalanced}) {
    EXPECT_EQ(names_of(dedup_save_plans({all, all}, rule)), (Names{"a c", "b d"}));
  }
}

TEST(Dedup, CountsTheBytesOfTheShardAndNotOfItsTensor) {
  // Rank 0 holds one row of a large tensor and rank 1 one row of a smaller one, which it writes in any case.
  const std::vector<SavePlan> all = {plan_of({rows_of("large", 0, 1, 1000), tensor_of("both", 10)}),
                                     plan_of({rows_of("small", 0, 2, 3), tensor_of("both", 10)})};
  EXPECT_EQ(names_of(dedup_save_plans(all, DedupRule::kBalanced)), (Names{"large both", "small"}));
  EXPECT_EQ(names_of(dedup_save_plans(all, DedupRule::kDcpBalanced)), (Names{"large", "small both"}));
}

TEST(Dedup, CountsWhatOnlyOneRankHoldsBeforeItDealsOutTheRest) {
  const std::vector<SavePlan> all = {plan_of({tensor_of("shared", 100), tensor_of("own", 5000)}),
                                     plan_of({tensor_of("shared", 100)})};
  EXPECT_EQ(names_of(dedup_save_plans(all)), (Names{"own", "shared"}));
}

TEST(Dedup, WorksOutTheExampleOfTheDocumentation) {
  constexpr std::int64_t kib = 1024;
  const auto rank = [&](const std::string& own, std::int64_t size) {
    return plan_of({tensor_of(own, size * kib), tensor_of("a", 40 * kib), tensor_of("b", 10 * kib),
                    WriteItem::bytes("step")});
  };
  EXPECT_EQ(names_of(dedup_save_plans({rank("s0", 20), rank("s1", 8), rank("s2", 8)})),
            (Names{"s0", "s1 a", "s2 b step"}));
}

TEST(Dedup, KeepsBothOfTwoEqualItemsInOnePlan) {
  const SavePlan twice = plan_of({WriteItem::bytes("x"), WriteItem::bytes("x")});
  EXPECT_EQ(names_of(dedup_save_plans({twice, twice})), (Names{"x x", ""}));
}

TEST(Dedup, OfNoPlansIsNoPlans) {
  EXPECT_TRUE(dedup_save_plans({}).empty());
  EXPECT_EQ(dedup_save_plans({SavePlan{}, SavePlan{}}).size(), 2u);
}

TEST(Dedup, NamesTensorAndRankOfASizeThatOverflows) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const WriteItem item = WriteItem::shard("w", DType::kFloat32, {huge, huge}, {{0, 0}, {huge, huge}});
  const Error e = error_of([&] { dedup_save_plans({SavePlan{}, plan_of({item})}); });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
  EXPECT_EQ(e.tensor(), "w");
  EXPECT_EQ(e.rank(), 1);
}

TEST(Dedup, RefusesANegativeSize) {
  const WriteItem item = WriteItem::shard("w", DType::kFloat32, {4}, {{0}, {-4}});
  const Error e = error_of([&] { dedup_save_plans({plan_of({item})}); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "w");
}

GlobalPlanOptions split_at(std::int64_t bytes, bool over_replicas = true) {
  GlobalPlanOptions options;
  options.split.max_item_bytes = bytes;
  options.split.over_replicas = over_replicas;
  return options;
}

std::vector<std::string> boxes_of(const SavePlan& plan) {
  std::vector<std::string> boxes;
  for (const WriteItem item : plan.items) {
    EXPECT_EQ(item.type, WriteItemType::kShard);
    EXPECT_EQ(item.index.offset, item.tensor_data->chunk.offsets);
    boxes.push_back(to_string(item.tensor_data->chunk));
  }
  return boxes;
}

TEST(Split, CutsALargeTensorAlongItsSlowestDimension) {
  const auto plans =
      balance_save_plans({plan_of({WriteItem::tensor("w", DType::kFloat32, {10, 4})})}, split_at(64));
  EXPECT_EQ(boxes_of(plans[0]), (Names{"[0:4, 0:4]", "[4:7, 0:4]", "[7:10, 0:4]"}));
}

TEST(Split, SpreadsThePiecesOverTheReplicas) {
  const SavePlan plan = plan_of({WriteItem::tensor("w", DType::kFloat32, {4, 4})});
  const auto plans = balance_save_plans({plan, plan}, split_at(16));
  EXPECT_EQ(boxes_of(plans[0]), (Names{"[0:1, 0:4]", "[2:3, 0:4]"}));
  EXPECT_EQ(boxes_of(plans[1]), (Names{"[1:2, 0:4]", "[3:4, 0:4]"}));
}

TEST(Split, StaysOnOneRankWhenAsked) {
  const SavePlan plan = plan_of({WriteItem::tensor("w", DType::kFloat32, {4, 4})});
  const auto plans = balance_save_plans({plan, plan}, split_at(32, false));
  EXPECT_EQ(boxes_of(plans[0]), (Names{"[0:2, 0:4]", "[2:4, 0:4]"}));
  EXPECT_TRUE(plans[1].items.empty());
}

TEST(Split, SkipsDimensionsOfOneAndKeepsTheShardsPlace) {
  const WriteItem item = WriteItem::shard("w", DType::kUInt8, {3, 8, 2}, {{1, 4, 0}, {1, 4, 2}});
  const auto plans = balance_save_plans({plan_of({item})}, split_at(4));
  EXPECT_EQ(boxes_of(plans[0]), (Names{"[1:2, 4:6, 0:2]", "[1:2, 6:8, 0:2]"}));
}

TEST(Split, LeavesAloneWhatCannotBeCut) {
  const auto plans = balance_save_plans(
      {plan_of({WriteItem::tensor("w", DType::kFloat64, {1, 1}), WriteItem::bytes("x")})}, split_at(1));
  EXPECT_EQ(plans[0].items[0].type, WriteItemType::kTensor);
  EXPECT_EQ(plans[0].items.size(), 2u);
}

TEST(Split, ByDefaultCutsAboveAnEighthOfARanksMeanLoad) {
  std::vector<SavePlan> all;
  const std::int64_t mib = std::int64_t{1} << 20;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back(
        plan_of({tensor_of("large" + std::to_string(rank), 1024 * mib), tensor_of("small", 60 * mib)}));
  }
  const auto plans = balance_save_plans(std::move(all), {});
  // The mean is 1054 MiB, its eighth 131.75 MiB: eight pieces of 128.
  EXPECT_EQ(plans[0].items.size() + plans[1].items.size(), 8u + 8u + 1u);
}

TEST(Split, ASizeThatLiesDoesNotBecomeMillionsOfPieces) {
  const auto plans = balance_save_plans({plan_of({tensor_of("w", std::int64_t{1} << 60)})}, split_at(1));
  EXPECT_LT(plans[0].items.size(), 70000u);
}

TEST(Split, AnObjectOfLessThanNothingIsRefused) {
  WriteItem object = WriteItem::bytes("x");
  object.bytes_io_data = BytesIOWriteData{-(std::int64_t{1} << 60)};
  const Error e = error_of([&] {
    balance_save_plans({plan_of({tensor_of("w", std::int64_t{1} << 60), object})}, split_at(1));
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "x");
  EXPECT_EQ(e.rank(), 0);
}

TEST(Split, RefusesRanksThatDifferOnTheItem) {
  const Error e = error_of([] {
    balance_save_plans({plan_of({rows_of("w", 0, 2, 4)}), plan_of({rows_of("w", 0, 3, 4)})}, {});
  });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "w");
  EXPECT_EQ(e.rank(), 1);
}

}  // namespace balance_test
}  // namespace cairn
