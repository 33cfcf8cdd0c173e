#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/error.h"
#include "cairn/state_dict.h"

namespace cairn {
namespace {

Value tensor() { return Tensor::zeros(DType::kFloat32, {2}); }

std::vector<std::string> names(const Flattened& flat) {
  std::vector<std::string> out;
  for (const FlatEntry& e : flat) out.push_back(e.name);
  return out;
}
using Names = std::vector<std::string>;

Value nested_lists(int depth, Value inside) {
  for (int i = 0; i < depth; ++i) {
    List around;
    around.push_back(std::move(inside));  // an initializer list would copy
    inside = std::move(around);
  }
  return inside;
}

template <class F> ErrorCode code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(Flatten, DescendsEveryMappingAndKeepsInsertionOrder) {
  const Flattened flat = flatten({{"step", 7}, {"model", Dict{{"w", tensor()}, {"a", Dict{{"b", "x"}}}}}});
  EXPECT_EQ(names(flat), (Names{"step", "model.w", "model.a.b"}));
  EXPECT_EQ(flat[2].path, (Path{"model", "a", "b"}));
  EXPECT_EQ(flat[2].value, Value("x"));
}

TEST(Flatten, ListWithAMappingIsDescendedWithIntegerSteps) {
  const Dict group{{"lr", 0.1}, {"betas", Tuple{{0.9, 0.99}}}, {"params", List{"w"}}};
  const Flattened flat = flatten({{"pg", List{group}}});
  EXPECT_EQ(names(flat), (Names{"pg.0.lr", "pg.0.betas", "pg.0.params"}));
  EXPECT_EQ(flat[0].path, (Path{"pg", std::int64_t{0}, "lr"}));
  EXPECT_EQ(flat[2].value, Value(List{"w"}));
}

TEST(Flatten, ListOfPlainValuesIsOneEntry) {
  const Flattened flat = flatten({{"a", List{1, List{2, "x"}}}, {"b", List{}}});
  EXPECT_EQ(names(flat), (Names{"a", "b"}));
  EXPECT_EQ(flat[1].value, Value(List{}));
}

TEST(Flatten, TensorAtAnyListDepthMakesTheListsAroundItDescended) {
  const Flattened flat = flatten({{"a", List{1, List{2, List{tensor()}}, List{3}}}});
  EXPECT_EQ(names(flat), (Names{"a.0", "a.1.0", "a.1.1.0", "a.2"}));
}

TEST(Flatten, EmptyDictInsideIsKeptAsAnEntry) {
  const Flattened flat = flatten({{"k", List{1, List{2, Dict{}}}}, {"e", Dict{}}});
  EXPECT_EQ(names(flat), (Names{"k.0", "k.1.0", "k.1.1", "e"}));
  EXPECT_EQ(flat[3].value, Value(Dict{}));
}

TEST(Flatten, EmptyStateHasNoEntries) {
  EXPECT_TRUE(flatten({}).empty());
  EXPECT_TRUE(flatten({}, FlattenRule::kTorch23).empty());
}

TEST(Flatten, TupleIsOneEntryEvenWithTensorsInside) {
  const Flattened flat =
      flatten({{"t", Tuple{{tensor(), Dict{{"a", tensor()}}}}}, {"l", List{Tuple{{tensor()}}}}});
  EXPECT_EQ(names(flat), (Names{"t", "l"}));
}

TEST(Flatten, IntegerKeysBecomeStringsInThePath) {
  const Flattened flat = flatten({{std::int64_t{3}, Dict{{std::int64_t{1}, 5}}}});
  ASSERT_EQ(names(flat), (Names{"3.1"}));
  EXPECT_EQ(flat[0].path, (Path{"3", "1"}));
}

TEST(Flatten, TwoEntriesOfOneNameAreRefusedByName) {
  for (const StateDict& state :
       {StateDict{{"a.b", 1}, {"a", Dict{{"b", 2}}}}, StateDict{{"a", Dict{{"1", 1}, {std::int64_t{1}, 2}}}},
        StateDict{{"a", List{tensor()}}, {"a.0", 1}}}) {
    try {
      flatten(state);
      ADD_FAILURE() << "no error for " << to_string(state);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(e.message().rfind("duplicated flatten key a.", 0), 0U) << e.message();
    }
  }
}

TEST(Flatten, EveryKindOfTensorCountsAsATensor) {
  ShardedTensor sharded;
  sharded.global_shape = {4};
  const Flattened flat = flatten({{"a", List{sharded}}, {"b", List{StoredTensor{}}}, {"c", List{tensor()}}});
  EXPECT_EQ(names(flat), (Names{"a.0", "b.0", "c.0"}));
}

TEST(FlattenTorch23, ContainersWithoutATensorBelowAreOneEntry) {
  const StateDict state{{"pg", List{Dict{{"lr", 0.1}}}}, {"d", Dict{{"a", Dict{{"b", 1}}}}}, {"e", Dict{}}};
  EXPECT_EQ(names(flatten(state, FlattenRule::kTorch23)), (Names{"pg", "d", "e"}));
}

TEST(FlattenTorch23, ContainersWithATensorBelowAreDescended) {
  const StateDict state{{"opt", Dict{{"state", Dict{{std::int64_t{0}, Dict{{"m", tensor()}, {"n", 1}}}}},
                                     {"groups", List{Dict{{"lr", 0.1}}}}}},
                        {"mixed", List{Dict{{"x", List{1}}, {"y", List{tensor()}}}, Dict{}}}};
  EXPECT_EQ(names(flatten(state, FlattenRule::kTorch23)),
            (Names{"opt.state.0.m", "opt.state.0.n", "opt.groups", "mixed.0.x", "mixed.0.y.0", "mixed.1"}));
}

TEST(FlattenTorch23, TensorInsideATupleDoesNotCount) {
  EXPECT_EQ(names(flatten({{"a", Dict{{"t", Tuple{{tensor()}}}}}}, FlattenRule::kTorch23)), (Names{"a"}));
}

TEST(Flatten, ValueAtTheNestingLimitIsTakenAndOneDeeperIsRefused) {
  EXPECT_EQ(flatten({{"a", nested_lists(998, tensor())}}).size(), 1U);
  for (FlattenRule rule : {FlattenRule::kCurrent, FlattenRule::kTorch23}) {
    EXPECT_EQ(code_of([&] { flatten({{"a", nested_lists(1001, tensor())}}, rule); }), ErrorCode::kLimit);
    EXPECT_EQ(code_of([&] { flatten({{"a", nested_lists(1500, 1)}}, rule); }), ErrorCode::kLimit);
  }
}

TEST(Unflatten, RestoresDictsAndLists) {
  const StateDict state{{"step", 7},
                        {"model", Dict{{"w", tensor()}, {"empty", Dict{}}}},
                        {"pg", List{Dict{{"lr", 0.1}}, Dict{{"lr", 0.2}, {"params", List{1, 2}}}}}};
  EXPECT_EQ(unflatten(flatten(state)), state);
  EXPECT_EQ(unflatten(flatten(state, FlattenRule::kTorch23)), state);
}

TEST(Unflatten, EntriesMayComeInAnyOrder) {
  Flattened flat = flatten({{"a", List{tensor(), 1, 2}}});
  std::swap(flat[0], flat[2]);
  EXPECT_EQ(unflatten(flat), (StateDict{{"a", List{tensor(), 1, 2}}}));
}

TEST(Unflatten, MissingListElementsAreNone) {
  EXPECT_EQ(unflatten({{"a.2", {"a", std::int64_t{2}}, 5}}), (StateDict{{"a", List{None{}, None{}, 5}}}));
}

TEST(Unflatten, ListThatNothingFillsIsRefused) {
  const Path path{"a", std::int64_t{1} << 40};
  EXPECT_EQ(code_of([&] { unflatten({{"a", path, 1}}); }), ErrorCode::kLimit);
  Flattened many;
  for (int i = 0; i < 5; ++i) {
    const std::string name = std::to_string(i);
    many.push_back({name, {name, std::int64_t{900'000}}, 1});
  }
  EXPECT_EQ(code_of([&] { unflatten(many); }), ErrorCode::kLimit);
}

}  // namespace
}  // namespace cairn
