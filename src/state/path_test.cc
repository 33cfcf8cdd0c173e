#include <gtest/gtest.h>

#include "cairn/error.h"
#include "cairn/state_dict.h"

namespace cairn {
namespace {

constexpr std::int64_t k0 = 0, k1 = 1, k2 = 2;

void expect_refused(StateDict state, const Path& path, ErrorCode code, const std::string& part) {
  const StateDict before = state;
  try {
    set_element(state, path, 1);
    ADD_FAILURE() << "no error for " << join(path);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
  }
  EXPECT_EQ(state.size(), before.size());
}

TEST(Path, JoinsNamesAndNumbersByDots) {
  EXPECT_EQ(join({"a", k0, "b.c"}), "a.0.b.c");
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({""}), "");
  EXPECT_EQ(to_string(Key{std::int64_t{-3}}), "-3");
}

TEST(SetElement, MakesContainersByTheNextStep) {
  StateDict state;
  set_element(state, {"a", "b", k1, "c"}, 5);
  EXPECT_EQ(state, (StateDict{{"a", Dict{{"b", List{None{}, Dict{{"c", 5}}}}}}}));
}

TEST(SetElement, FillsThePaddingOfALater) {
  StateDict state;
  set_element(state, {"a", k2}, 5);
  set_element(state, {"a", k0, "x"}, 6);
  EXPECT_EQ(state, (StateDict{{"a", List{Dict{{"x", 6}}, None{}, 5}}}));
}

TEST(SetElement, ReplacesAValueInPlace) {
  StateDict state{{"a", 1}, {"b", 2}};
  set_element(state, {"a"}, 3);
  EXPECT_EQ(state, (StateDict{{"a", 3}, {"b", 2}}));
}

TEST(SetElement, NameDoesNotMatchAnIntegerKey) {
  StateDict state{{"s", Dict{{k1, 5}}}};
  set_element(state, {"s", "1"}, 7);
  EXPECT_EQ(state, (StateDict{{"s", Dict{{k1, 5}, {"1", 7}}}}));
}

TEST(SetElement, PathThroughAScalarIsRefused) {
  expect_refused({{"a", 1}}, {"a", "b"}, ErrorCode::kInvalidArgument, "holds no entries");
}
TEST(SetElement, PathThroughNoneInADictIsRefused) {
  expect_refused({{"a", None{}}}, {"a", "b"}, ErrorCode::kInvalidArgument, "holds no entries");
}
TEST(SetElement, PathThroughATupleIsRefused) {
  expect_refused({{"a", Tuple{{1, 2}}}}, {"a", k0}, ErrorCode::kInvalidArgument, "holds no entries");
}
TEST(SetElement, NameIntoAListIsRefused) {
  expect_refused({{"a", List{1}}}, {"a", "b"}, ErrorCode::kInvalidArgument, "there is a list");
}
TEST(SetElement, NegativePositionIsRefused) {
  expect_refused({{"a", List{1}}}, {"a", std::int64_t{-1}}, ErrorCode::kInvalidArgument, "negative");
}
TEST(SetElement, EmptyPathIsRefused) {
  expect_refused({{"a", 1}}, {}, ErrorCode::kInvalidArgument, "no steps");
}
TEST(SetElement, FarPositionIsRefused) {
  expect_refused({{"a", List{1}}}, {"a", std::int64_t{1} << 62}, ErrorCode::kLimit, "nothing fills");
  expect_refused({{"a", List{}}}, {"a", (std::int64_t{1} << 20) + 1}, ErrorCode::kLimit, "nothing fills");
}
TEST(SetElement, PathOfTooManyStepsIsRefused) {
  expect_refused({{"a", 1}}, Path(1001, Key{"x"}), ErrorCode::kLimit, "nested deeper");
}

TEST(GetElement, FollowsNamesAndPositions) {
  const StateDict state{{"a", Dict{{"b", List{1, Dict{{"c", 5}}}}}}};
  ASSERT_NE(get_element(state, {"a", "b", k1, "c"}), nullptr);
  EXPECT_EQ(*get_element(state, {"a", "b", k1, "c"}), Value(5));
}

TEST(GetElement, IsNullWhereNothingIs) {
  const StateDict state{{"a", List{1}}, {"t", Tuple{{1}}}, {"n", 3}, {"d", Dict{{k1, 2}}}};
  EXPECT_EQ(get_element(state, {"x"}), nullptr);
  EXPECT_EQ(get_element(state, {"a", k1}), nullptr);  // one past the end
  EXPECT_EQ(get_element(state, {"a", std::int64_t{-1}}), nullptr);
  EXPECT_EQ(get_element(state, {"a", "0"}), nullptr);
  EXPECT_EQ(get_element(state, {"t", k0}), nullptr);
  EXPECT_EQ(get_element(state, {"n", "x"}), nullptr);
  EXPECT_EQ(get_element(state, {"d", "1"}), nullptr);
  EXPECT_EQ(get_element(state, {}), nullptr);
}

}  // namespace
}  // namespace cairn
