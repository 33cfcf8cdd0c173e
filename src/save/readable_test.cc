// What is written can be read back; what could not be is not written.
#include <gtest/gtest.h>

#include "cairn/cairn.h"
#include "format/zstd_sink.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/states.h"

namespace cairn {
namespace {

class Readable : public testing::Test {
 protected:
  TestFolder folder;
  const std::string path = folder / "step-1";
  SaveOptions fast = [] {
    SaveOptions options;
    options.write.durable = false;
    return options;
  }();

  void expect_kept(const std::string& name, Value value) {
    SCOPED_TRACE(name.substr(0, 40));
    StateDict state;
    state.set(name, std::move(value));
    save(state, path, fast);
    const StateDict loaded = load_into_new(path);
    EXPECT_TRUE(loaded == state);
  }

  Error refused(const std::string& name, Value value, const SaveOptions& options) {
    StateDict state;
    state.set(name, std::move(value));
    return error_of([&] { save(state, path, options); });
  }
};

Value nested(int depth) {
  Value value(1);
  for (int i = 0; i < depth; ++i) {
    if (i % 3 == 0) value = Value(Tuple{{std::move(value)}});
    if (i % 3 == 1) value = Value(List{std::move(value)});
    if (i % 3 == 2) value = Value(Tuple{{Value(Dict{{"a", std::move(value)}})}});
  }
  return Value(Tuple{{std::move(value)}});  // never cut into entries
}

TEST_F(Readable, ObjectsOfAnySize) {
  expect_kept("text", Value(std::string(17 << 20, 'x')));
  expect_kept("bytes", Value(Bytes{std::string(17 << 20, '\xe9')}));
  expect_kept("tuple", Value(Tuple{List(100'000, Value(7))}));
  expect_kept("nones", Value(Tuple{{Value(List(1'000'000))}}));
}

TEST_F(Readable, NestedObjects) {
  for (const int depth : {63, 100, 600}) expect_kept("deep", nested(depth));
}

TEST_F(Readable, LongNames) {
  expect_kept(std::string(64 << 10, 'n'), Value(3));
  expect_kept(std::string(5000, 'n'), Value(numbered({3}, 1)));
  const Error error = refused(std::string((64 << 10) + 1, 'n'), Value(3), fast);
  EXPECT_EQ(error.code(), ErrorCode::kLimit);
  EXPECT_TRUE(mentions(error, "65536")) << error.what();
}

TEST_F(Readable, ObjectsThatShrinkWell) {
  if (!zstd_is_built_in()) GTEST_SKIP();
  fast.write.transforms = {"zstd"};
  expect_kept("zeros", Value(Bytes{std::string(70 << 20, '\0')}));
}

TEST_F(Readable, AnObjectBeyondTheLimitIsRefusedByNameAndTheOldCheckpointStays) {
  expect_kept("step", Value(1));
  fast.write.limits.object_bytes = 1 << 20;
  for (const Value& value : {Value(std::string(2 << 20, 'x')), Value(Tuple{{Value(List(100'000))}})}) {
    const Error error = refused("vocabulary", value, fast);
    EXPECT_EQ(error.code(), ErrorCode::kLimit) << error.what();
    EXPECT_TRUE(mentions(error, "'vocabulary'")) << error.what();
    EXPECT_TRUE(mentions(error, "1048576") || mentions(error, "1 MiB")) << error.what();
  }
  EXPECT_EQ(*load_into_new(path).find("step"), Value(1));
}

TEST_F(Readable, WhoeverReadsMayAllowLess) {
  expect_kept("text", Value(std::string(2 << 20, 'x')));
  LoadOptions less;
  less.read.limits.object_bytes = 1 << 20;
  EXPECT_EQ(error_of([&] { load_into_new(path, std::nullopt, less); }).code(), ErrorCode::kLimit);
}

// A planner whose data nobody could read back.
class Talkative final : public DefaultSavePlanner {
 public:
  explicit Talkative(Value data) : data_(std::move(data)) {}
  GlobalSavePlan create_global_plan(std::vector<SavePlan> all) override {
    GlobalSavePlan plan = DefaultSavePlanner::create_global_plan(std::move(all));
    Metadata metadata = *plan.metadata;
    metadata.planner_data = data_;
    plan.metadata = std::make_shared<const Metadata>(std::move(metadata));
    return plan;
  }

 private:
  Value data_;
};

TEST_F(Readable, MetadataThatNobodyCouldReadIsRefused) {
  expect_kept("step", Value(1));
  const auto deep = [](int levels) {
    Value value(1);
    for (int i = 0; i < levels; ++i) value = Value(List{std::move(value)});
    return value;
  };
  const std::vector<Value> bad = {Value(BigInt{std::string(12, '\x7f')}), Value("\xed\xa0\x80"), deep(100),
                                  Value(std::string((64 << 10) + 1, 'x'))};
  for (const Value& data : bad) {
    Talkative planner{Value(Dict{{"notes", data}})};
    SaveOptions options = fast;
    options.planner = &planner;
    const Error error = refused("step", Value(2), options);
    EXPECT_TRUE(error.code() == ErrorCode::kLimit || error.code() == ErrorCode::kCorrupt) << error.what();
    EXPECT_TRUE(mentions(error, "could not be read back")) << error.what();
    EXPECT_EQ(*load_into_new(path).find("step"), Value(1));
  }
  Talkative planner{Value(Dict{{"notes", deep(40)}})};
  SaveOptions options = fast;
  options.planner = &planner;
  StateDict state;
  state.set("step", Value(2));
  save(state, path, options);
  EXPECT_EQ(*load_into_new(path).find("step"), Value(2));
}

TEST_F(Readable, StatesOfAHundredThousandLevelsAreErrors) {
  expect_kept("deep", Value(1));
  for (const int kind : {0, 1, 2}) {
    Value deep(1);
    for (int i = 0; i < 100'000; ++i) {
      List one;
      one.push_back(std::move(deep));
      if (kind == 0) deep = Value(std::move(one));
      if (kind == 1) deep = Value(Tuple{std::move(one)});
      if (kind == 2) {
        Dict dict;
        dict.set("a", std::move(one.front()));
        deep = Value(std::move(dict));
      }
    }
    EXPECT_EQ(error_of([&] { (void)Value(deep); }).code(), ErrorCode::kLimit);
    StateDict state;
    state.set("deep", std::move(deep));
    EXPECT_EQ(error_of([&] { save(state, path, fast); }).code(), ErrorCode::kLimit);
    EXPECT_EQ(error_of([&] { load(state, path); }).code(), ErrorCode::kLimit);
  }
}

}  // namespace
}  // namespace cairn
