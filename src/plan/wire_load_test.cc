#include "plan/wire_load.h"

#include <gtest/gtest.h>

#include "plan/wire_header.h"
#include "testing/errors.h"

namespace cairn {
namespace wire_load_test {

LoadPlan rich_plan() {
  ReadItem tensor;
  tensor.dest_index = {"model.w", Shape{4, 0}, 1};
  tensor.dest_offsets = {0, 2};
  tensor.storage_index = {"model.w", Shape{0, 0}, 7};
  tensor.storage_offsets = {4, 2};
  tensor.lengths = {2, 6};
  ReadItem object;
  object.type = LoadItemType::kByteIO;
  object.dest_index.fqn = "step";
  object.storage_index.fqn = "old.step";
  object.dest_offsets = object.storage_offsets = object.lengths = {0};
  LoadPlan plan;
  plan.items = {tensor, object, tensor};
  plan.items[2].storage_index.index.reset();
  plan.shared = {{0, 1, {0, 2}}, {1, 2, {}}};
  plan.storage_data = Dict{{"prefix", "__0_"}};
  plan.planner_data = Value(List{Value(1), Value("x")});
  return plan;
}

LoadPlan decoded(const std::string& message) { return decode_load_plan(as_bytes(message), 1, 3); }

TEST(WireLoad, PlansArriveAsTheyLeft) {
  EXPECT_EQ(decoded(encode_load_plan(rich_plan(), 1, 3)), rich_plan());
  EXPECT_EQ(decoded(encode_load_plan(LoadPlan(), 1, 3)), LoadPlan());
}

TEST(WireLoad, APlanCutShortIsCorrupt) {
  const std::string good = encode_load_plan(rich_plan(), 1, 3);
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(error_of([&] { decoded(good.substr(0, size)); }).code(), ErrorCode::kCorrupt) << size;
  EXPECT_EQ(error_of([&] { decoded(good + "x"); }).code(), ErrorCode::kCorrupt);
}

TEST(WireLoad, NumbersThatPointNowhereAreCorruptOrAnotherPlan) {
  const std::string good = encode_load_plan(rich_plan(), 1, 3);
  int refused = 0;
  for (std::size_t at = sizeof(PlanHeader); at + 4 <= good.size(); ++at) {
    std::string message = good;
    store(message.data() + at, std::uint32_t{0x7fffffff});
    try {
      decoded(message);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

// Hints are not compared.
TEST(WireLoad, PositionsArriveAsTheyLeft) {
  const LoadPlan plan = decoded(encode_load_plan(rich_plan(), 1, 3));
  EXPECT_EQ(plan.items[0].dest_index.index, 1);
  EXPECT_EQ(plan.items[0].storage_index.index, 7);
  EXPECT_EQ(plan.items[1].dest_index.index, std::nullopt);
  EXPECT_EQ(plan.items[2].storage_index.index, std::nullopt);
}

TEST(WireLoad, SharedItemsAndRanksMustBeThere) {
  const auto with_shared = [](const SharedRead& shared) {
    LoadPlan plan = rich_plan();
    plan.shared = {shared};
    return encode_load_plan(plan, 1, 3);
  };
  EXPECT_NO_THROW(decoded(with_shared({2, 2, {0, 2}})));
  for (const SharedRead& wrong : {SharedRead{3, 2, {0}}, SharedRead{2, 3, {0}}, SharedRead{2, 2, {0, 3}}})
    EXPECT_EQ(error_of([&] { decoded(with_shared(wrong)); }).code(), ErrorCode::kCorrupt) << wrong.item;
}

TEST(WireLoad, FlippedBitsOfTheHeaderAreTypedErrors) {
  const std::string good = encode_load_plan(rich_plan(), 1, 3);
  for (std::size_t bit = 0; bit < 8 * sizeof(PlanHeader); ++bit) {
    std::string message = good;
    message[bit / 8] = static_cast<char>(message[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(decoded(message), Error) << bit;
  }
}

TEST(WireLoad, APlanOfAnotherRankIsAConflict) {
  const std::string message = encode_load_plan(rich_plan(), 0, 3);
  EXPECT_EQ(error_of([&] { decoded(message); }).code(), ErrorCode::kConflict);
}

TEST(WireLoad, PathsDoNotTravel) {
  LoadPlan plan = rich_plan();
  plan.planner_data = PathMap();
  EXPECT_EQ(error_of([&] { encode_load_plan(plan, 1, 3); }).code(), ErrorCode::kUnsupported);
}

}  // namespace wire_load_test
}  // namespace cairn
