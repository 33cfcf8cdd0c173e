#include <gtest/gtest.h>

#include <limits>

#include "cairn/plan_steps.h"
#include "plan/cover_check.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace validate_test {

using Kind = PlanProblem::Kind;

std::vector<PlanProblem> problems_of(std::vector<SavePlan> plans, bool allow_partial = false) {
  const GlobalSavePlan global = create_default_global_save_plan(std::move(plans));
  return validate_global_plan(global.plans, *global.metadata, allow_partial);
}

std::vector<Kind> kinds_of(const std::vector<PlanProblem>& problems) {
  std::vector<Kind> kinds;
  for (const PlanProblem& problem : problems) kinds.push_back(problem.kind);
  return kinds;
}

WriteItem box_of(Shape offsets, Shape sizes) {
  return WriteItem::shard("w", DType::kFloat32, {4, 4}, {std::move(offsets), std::move(sizes)});
}

TEST(Validate, FindsNothingWrongWithShardsThatTile) {
  EXPECT_TRUE(problems_of({plan_of({rows_of("w", 0, 2, 4)}), plan_of({rows_of("w", 2, 4, 4)})}).empty());
  EXPECT_TRUE(problems_of({plan_of({box_of({0, 0}, {2, 2}), box_of({2, 2}, {2, 2})}),
                           plan_of({box_of({0, 2}, {2, 2}), box_of({2, 0}, {2, 2})})})
                  .empty());
  EXPECT_TRUE(problems_of({plan_of({WriteItem::tensor("s", DType::kFloat32, {}), WriteItem::bytes("x"),
                                    WriteItem::tensor("e", DType::kFloat32, {0, 3})})})
                  .empty());
}

TEST(Validate, FindsAPartThatNobodyWritesWithOneRankToo) {
  const auto problems = problems_of({plan_of({rows_of("w", 0, 3, 4)})});
  ASSERT_EQ(kinds_of(problems), (std::vector{Kind::kHole}));
  EXPECT_NE(problems[0].text.find("4 of 16 elements"), std::string::npos) << problems[0].text;
}

TEST(Validate, AllowsPartialSavesWhenAsked) {
  EXPECT_TRUE(problems_of({plan_of({rows_of("w", 0, 3, 4)})}, true).empty());
  EXPECT_FALSE(problems_of({plan_of({rows_of("w", 0, 5, 4)})}, true).empty());
}

TEST(Validate, NamesTheRankWhoseChunkIsOutOfBounds) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const WriteItem& bad : {box_of({-1, 0}, {2, 4}), box_of({2, 0}, {3, 4}), box_of({0, 0}, {-1, 4}),
                               box_of({most, 0}, {1, 4}), box_of({1, 0}, {most, most}), box_of({0}, {4})}) {
    const auto problems = problems_of({SavePlan{}, plan_of({bad})});
    ASSERT_FALSE(problems.empty());
    EXPECT_EQ(problems[0].kind, Kind::kOutOfBounds);
    EXPECT_EQ(problems[0].rank, 1);
    EXPECT_EQ(problems[0].fqn, "w");
  }
}

TEST(Validate, NamesTheRankWhoseChunkOverlaps) {
  const auto problems = problems_of({plan_of({rows_of("w", 0, 3, 4)}), plan_of({rows_of("w", 2, 4, 4)})});
  ASSERT_EQ(kinds_of(problems), (std::vector{Kind::kOverlap}));
  EXPECT_EQ(problems[0].rank, 1);
}

TEST(Validate, FindsOverlapsBesideChunksThatAreOutOfBounds) {
  const auto problems = problems_of(
      {plan_of({rows_of("w", 0, 9, 4), rows_of("w", 1, 3, 4)}), plan_of({rows_of("w", 2, 4, 4)})});
  EXPECT_EQ(kinds_of(problems), (std::vector{Kind::kOutOfBounds, Kind::kOverlap}));
  EXPECT_EQ(problems[1].rank, 1);
}

TEST(Validate, FindsRanksThatDifferInDtypeOrGlobalSize) {
  WriteItem half = rows_of("w", 2, 4, 4);
  half.tensor_data->properties.dtype = DType::kFloat16;
  auto problems = problems_of({plan_of({rows_of("w", 0, 2, 4)}), plan_of({half})});
  ASSERT_EQ(kinds_of(problems), (std::vector{Kind::kDType}));
  EXPECT_EQ(problems[0].rank, 1);
  problems = problems_of({plan_of({rows_of("w", 0, 2, 4)}), plan_of({rows_of("w", 2, 4, 5)})});
  ASSERT_EQ(kinds_of(problems), (std::vector{Kind::kSize}));
}

TEST(Validate, FindsAGlobalSizeThatOverflows) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const auto problems =
      problems_of({plan_of({WriteItem::shard("w", DType::kFloat32, {huge, huge}, {{0, 0}, {1, 1}})})});
  EXPECT_EQ(kinds_of(problems), (std::vector{Kind::kSize}));
}

TEST(Validate, ReportsAllProblemsGroupedByTensorAndThenACount) {
  std::vector<SavePlan> plans(1);
  for (int i = 0; i < 40; ++i) plans[0].items.push_back(rows_of("tensor" + std::to_string(i), 0, 1, 2));
  const auto problems = problems_of(plans);
  EXPECT_EQ(problems.size(), 40u);
  const Error e = error_of([&] { require_valid(problems); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(mentions(e, "Failed to validate global plan: 'tensor0': ")) << e.what();
  EXPECT_TRUE(mentions(e, " more")) << e.what();
  EXPECT_LT(to_string(problems).size(), 530u);
}

TEST(Conflicts, AreRanksThatClaimAnIndexWithDifferentExtentsDtypesOrSizes) {
  WriteItem half = rows_of("w", 0, 2, 4);
  half.tensor_data->properties.dtype = DType::kFloat16;
  const SavePlan plan = plan_of({rows_of("w", 0, 2, 4)});
  EXPECT_TRUE(find_conflicts({plan, plan}).empty());
  EXPECT_EQ(kinds_of(find_conflicts({plan, plan_of({half})})), (std::vector{Kind::kDType}));
  EXPECT_EQ(kinds_of(find_conflicts({plan, plan_of({rows_of("w", 0, 3, 4)})})), (std::vector{Kind::kExtent}));
  EXPECT_EQ(kinds_of(find_conflicts({plan, plan_of({rows_of("w", 0, 2, 5)})})), (std::vector{Kind::kSize}));
}

TEST(SlicesInOrder, AreSeenAndNothingElseIs) {
  const Shape shape = {4, 4};
  EXPECT_TRUE(are_slices_in_order(shape, {{{0, 0}, {4, 4}}}));
  EXPECT_TRUE(are_slices_in_order(shape, {{{0, 0}, {4, 1}}, {{0, 1}, {4, 3}}, {{0, 4}, {4, 0}}}));
  EXPECT_FALSE(are_slices_in_order(shape, {}));
  EXPECT_FALSE(are_slices_in_order(shape, {{{0, 0}, {4, 4}}, {{0, 0}, {4, 4}}}));
  EXPECT_FALSE(are_slices_in_order(shape, {{{0, 0}, {2, 4}}}));
  EXPECT_FALSE(are_slices_in_order(shape, {{{0, 0}, {2, 4}}, {{1, 0}, {2, 4}}}));
  EXPECT_FALSE(are_slices_in_order(shape, {{{0, 0}, {2, 2}}, {{2, 0}, {2, 4}}}));
}

}  // namespace validate_test
}  // namespace cairn
