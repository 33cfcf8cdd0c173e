#include "plan/wire.h"

#include <gtest/gtest.h>

#include "base/wire_bytes.h"
#include "plan/wire_header.h"
#include "testing/errors.h"
#include "testing/plans.h"

namespace cairn {
namespace wire_test {

SavePlan rich_plan() {
  WriteItem hinted = rows_of("model.w", 2, 4, 8);
  hinted.index.index = 3;
  hinted.tensor_data->properties.requires_grad = true;
  WriteItem sized = WriteItem::bytes("step");
  sized.bytes_io_data = BytesIOWriteData{77};
  SavePlan plan =
      plan_of({hinted, sized, WriteItem::tensor("s", DType::kBFloat16, {}), WriteItem::bytes("é")});
  PathMap paths;
  paths.add("model.w", {"model", "w"});
  paths.add("opt.0", {"opt", std::int64_t{0}});
  paths.add("a.b.c", {"a.b", "c"});
  paths.add("x..", {"x", "", ""});
  paths.add("", {""});
  paths.add("step", {"elsewhere", std::int64_t{-7}, "x"});
  paths.add("é", {});
  plan.planner_data = paths;
  plan.storage_data =
      Dict{{"prefix", "__0_"}, {std::int64_t{1}, List{Value(true), Value(2.5), Value(None{})}}};
  return plan;
}

std::vector<SavePlan> over_the_wire(const std::vector<SavePlan>& plans) {
  const int ranks = static_cast<int>(plans.size());
  PlanGather gather(ranks);
  for (int rank = ranks - 1; rank >= 0; --rank)
    gather.add(as_bytes(encode_local_plan(plans[rank], rank, ranks)));
  return gather.take();
}

TEST(Wire, PlansArriveAsTheyLeft) {
  SavePlan values = plan_of({});
  values.planner_data = Value(Tuple{{Value(Bytes{"x"}), Value(BigInt{"\x01"})}});
  const std::vector<SavePlan> plans = {rich_plan(), SavePlan{}, SavePlan::unchanged(), values, rich_plan()};
  EXPECT_EQ(over_the_wire(plans), plans);
  for (const SavePlan& plan : plans) {
    EXPECT_EQ(decode_global_plan(as_bytes(encode_global_plan(plan, 1, 2)), 1, 2), plan);
  }
}

TEST(Wire, PlansOfAllRanksShareTheirTablesAndPaths) {
  const auto plans = over_the_wire({rich_plan(), rich_plan()});
  EXPECT_EQ(plans[0].items.rows().tables, plans[1].items.rows().tables);
  EXPECT_TRUE(std::get<PathMap>(plans[0].planner_data).shares_with(std::get<PathMap>(plans[1].planner_data)));
}

TEST(Wire, EqualPlansHaveEqualBytesWhateverTheirTables) {
  const SavePlan plan = rich_plan();
  const auto joined = over_the_wire({plan_of({WriteItem::bytes("other")}), plan});
  EXPECT_EQ(encode_local_plan(joined[1], 0, 1), encode_local_plan(plan, 0, 1));
  PlanEncoder encoder;  // used again, with tables that come and go
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(encoder.encode(PlanMessage::kLocalPlan, joined[1], 0, 1), encode_local_plan(plan, 0, 1));
    EXPECT_EQ(encoder.encode(PlanMessage::kLocalPlan, SavePlan{}, 0, 1), encode_local_plan(SavePlan{}, 0, 1));
  }
}

TEST(Wire, AnItemCostsLessThan64BytesBesideItsName) {
  SavePlan plan;
  PathMap paths;
  std::size_t names = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string layer = std::to_string(i / 10);
    const std::string name = "model.layers." + layer + ".block.param_" + std::to_string(i % 10) + ".weight";
    plan.items.push_back(rows_of(name, 8 * i, 8 * i + 8, 8000, 1024));  // every box another
    paths.add(name, {"model", "layers", layer, "block", "param_" + std::to_string(i % 10), "weight"});
    names += name.size();
  }
  plan.planner_data = paths;
  const std::size_t bytes = encode_local_plan(plan, 0, 1).size();
  EXPECT_LT(bytes - names, 64u * 1000u);
}

TEST(Wire, TensorsCannotBeAttachedToPlans) {
  SavePlan plan;
  plan.storage_data = Value(Tensor::zeros(DType::kInt8, {1}));
  EXPECT_EQ(error_of([&] { encode_local_plan(plan, 0, 1); }).code(), ErrorCode::kUnsupported);
}

// A good message with one thing changed, and what the gatherer says.
Error after(const std::function<void(std::string&)>& change, int world_size = 2) {
  std::string message = encode_local_plan(rich_plan(), 1, 2);
  change(message);
  PlanGather gather(world_size);
  return error_of([&] { gather.add(as_bytes(message)); });
}

template <class T> std::function<void(std::string&)> with(T PlanHeader::*field, T value) {
  return [=](std::string& message) {
    auto header = load<PlanHeader>(message.data());
    header.*field = value;
    store(message.data(), header);
  };
}

TEST(Wire, AMessageCutShortAnywhereIsCorrupt) {
  const std::string message = encode_local_plan(rich_plan(), 1, 2);
  for (std::size_t size = 0; size < message.size(); ++size) {
    EXPECT_EQ(after([&](std::string& m) { m.resize(size); }).code(), ErrorCode::kCorrupt) << size;
  }
}

TEST(Wire, AMessageWithMoreBytesIsCorrupt) {
  EXPECT_EQ(after([](std::string& m) { m += "x"; }).code(), ErrorCode::kCorrupt);
}

TEST(Wire, SomethingElseIsCorrupt) {
  EXPECT_EQ(after([](std::string& m) { m[0] = 'x'; }).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(after(with<std::uint8_t>(&PlanHeader::kind, 2)).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(after(with<std::uint8_t>(&PlanHeader::flags, 255)).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(after(with<std::uint8_t>(&PlanHeader::flags, PlanHeader::kHasPaths)).code(), ErrorCode::kCorrupt);
}

TEST(Wire, AnotherVersionIsUnsupported) {
  const Error e = after(with<std::uint16_t>(&PlanHeader::version, 2));
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(e, "version 2")) << e.what();
}

TEST(Wire, AnotherWorldSizeIsAConflict) {
  const Error e = after([](std::string&) {}, 3);
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_EQ(e.rank(), 1);
}

TEST(Wire, ARankThatDoesNotExistIsCorrupt) {
  EXPECT_EQ(after(with<std::uint32_t>(&PlanHeader::rank, 2)).code(), ErrorCode::kCorrupt);
}

TEST(Wire, CountsFarBeyondTheMessageAreCorruptAndCostNothing) {
  for (auto field : {&PlanHeader::items, &PlanHeader::names, &PlanHeader::name_bytes, &PlanHeader::dims,
                     &PlanHeader::dim_values, &PlanHeader::specs, &PlanHeader::path_entries,
                     &PlanHeader::path_bytes, &PlanHeader::attached_bytes}) {
    EXPECT_EQ(after(with<std::uint32_t>(field, 0xfffffff0)).code(), ErrorCode::kCorrupt);
  }
}

TEST(Wire, AnyNumberInARowThatPointsNowhereIsCorruptOrAnotherPlan) {
  const std::string good = encode_local_plan(rich_plan(), 1, 2);
  int refused = 0;
  for (std::size_t at = sizeof(PlanHeader); at + 4 <= good.size(); ++at) {
    std::string message = good;
    store(message.data() + at, std::uint32_t{0x7fffffff});
    PlanGather gather(2);
    try {
      gather.add(as_bytes(message));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << e.what();
      EXPECT_EQ(e.rank(), 1);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Wire, ARankThatSpeaksTwiceOrNotAtAllIsAConflict) {
  const std::string message = encode_local_plan(rich_plan(), 1, 3);
  PlanGather gather(3);
  gather.add(as_bytes(message));
  EXPECT_EQ(error_of([&] { gather.add(as_bytes(message)); }).code(), ErrorCode::kConflict);
  const Error e = error_of([&] { gather.take(); });
  EXPECT_EQ(e.code(), ErrorCode::kConflict);
  EXPECT_TRUE(mentions(e, "0, 2")) << e.what();
}

TEST(Wire, AWorldHasAtLeastOneRank) {
  EXPECT_EQ(error_of([] { PlanGather gather(0); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([] { PlanGather gather(-1); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Wire, APlanForAnotherRankIsAConflict) {
  const std::string message = encode_global_plan(rich_plan(), 1, 2);
  EXPECT_EQ(error_of([&] { decode_global_plan(as_bytes(message), 0, 2); }).code(), ErrorCode::kConflict);
}

std::vector<WriteResult> some_results() {
  WriteResult tensor{{"w", Shape{4, 0}, 2}, 100, {"__0_0.distcp", 4096, 100, {"stream.zstd/1", "x"}, {}}};
  WriteResult object{
      {"step", std::nullopt, std::nullopt}, 7, {"__0_1.distcp", 0, 7, {}, Dict{{"crc", Value(5)}}}};
  return {tensor, object, tensor};
}

std::vector<WriteResult> decoded(const std::string& message, int rank = 1) {
  std::vector<WriteResult> results;
  decode_write_results(as_bytes(message), rank, 2,
                       [&](const WriteResult& result) { results.push_back(result); });
  return results;
}

TEST(Wire, ResultsArriveAsTheyLeft) {
  EXPECT_EQ(decoded(encode_write_results(some_results(), 1, 2)), some_results());
  EXPECT_TRUE(decoded(encode_write_results({}, 1, 2)).empty());
}

TEST(Wire, ResultsOfAnotherRankAreAConflict) {
  const std::string message = encode_write_results(some_results(), 1, 2);
  EXPECT_EQ(error_of([&] { decoded(message, 0); }).code(), ErrorCode::kConflict);
}

TEST(Wire, ResultsCutShortOrBentAreCorrupt) {
  const std::string good = encode_write_results(some_results(), 1, 2);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(error_of([&] { decoded(good.substr(0, size)); }).code(), ErrorCode::kCorrupt) << size;
  }
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

}  // namespace wire_test
}  // namespace cairn
