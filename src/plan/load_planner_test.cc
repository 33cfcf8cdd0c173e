#include <gtest/gtest.h>

#include "cairn/planner.h"
#include "testing/errors.h"

namespace cairn {
namespace load_planner_test {

TensorStorageMetadata tensor(DType dtype, const Shape& size) {
  TensorStorageMetadata stored;
  stored.properties.dtype = dtype;
  stored.size = size;
  stored.chunks = {Box::whole(size)};
  return stored;
}

// A checkpoint of "model.w" (float32, 4 x 8) and an object "step".
Metadata checkpoint() {
  Metadata metadata;
  metadata.state_dict_metadata.emplace_back("model.w", tensor(DType::kFloat32, {4, 8}));
  metadata.state_dict_metadata.emplace_back("step", BytesStorageMetadata{});
  return metadata;
}

StateDict state_with(DType dtype, const Shape& size) {
  StateDict state;
  state.set("model", Dict{{"w", Value(Tensor::zeros(dtype, size))}});
  state.set("step", 0);
  return state;
}

LoadPlan plan_of(DefaultLoadPlanner& planner, StateDict& state, const Metadata& metadata) {
  planner.set_up_planner(state, &metadata, true);
  return planner.create_local_plan();
}

TEST(LoadPlanner, PlansWhatTheStateWants) {
  const Metadata metadata = checkpoint();
  StateDict state = state_with(DType::kFloat32, {4, 8});
  DefaultLoadPlanner planner;
  const LoadPlan plan = plan_of(planner, state, metadata);
  ASSERT_EQ(plan.items.size(), 2U);
  EXPECT_EQ(plan.items[0].lengths, (Shape{4, 8}));
  EXPECT_EQ(plan.items[1].type, LoadItemType::kByteIO);
  EXPECT_TRUE(planner.report().clean());
  const auto& w = state.find("model")->get<Dict>().find("w")->get<Tensor>();
  EXPECT_EQ(planner.resolve_tensor(plan.items[0]).data, w.view().data);
  planner.load_bytes(plan.items[1], Value(7));
  EXPECT_EQ(*state.find("step"), Value(7));
}

TEST(LoadPlanner, ReportNamesEverythingThatDiffers) {
  Metadata metadata = checkpoint();
  metadata.state_dict_metadata.emplace_back("model.v", tensor(DType::kInt64, {2}));
  metadata.state_dict_metadata.emplace_back("extra", BytesStorageMetadata{});
  StateDict state = state_with(DType::kFloat32, {8, 4});
  state.set("model.v", Tensor::zeros(DType::kInt32, {2}));
  state.set("model.x", 1);
  state.set("lost", 1);
  DefaultLoadPlanner planner;
  const Error error = error_of([&] { (void)plan_of(planner, state, metadata); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(
      error.message().starts_with("Missing key in checkpoint state_dict: model.x. Did you mean 'model."))
      << error.message();
  EXPECT_TRUE(mentions(error, "1 of another shape: 'model.w' saved [4, 8] wanted [8, 4]")) << error.what();
  const LoadReport& report = planner.report();
  ASSERT_EQ(report.missing.size(), 2U);
  EXPECT_EQ(report.missing[1].fqn, "lost");
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra"});
  ASSERT_EQ(report.shapes.size(), 1U);
  const LoadReport::DTypeMismatch dtype{"model.v", DType::kInt64, DType::kInt32, true};
  EXPECT_EQ(report.dtypes, std::vector<LoadReport::DTypeMismatch>{dtype});
}

TEST(LoadPlanner, PartialLoadLeavesMissingKeysAlone) {
  const Metadata metadata = checkpoint();
  StateDict state = state_with(DType::kFloat32, {4, 8});
  state.set("lost", 1);
  LoadPlannerOptions options;
  options.allow_partial_load = true;
  DefaultLoadPlanner planner(options);
  EXPECT_EQ(plan_of(planner, state, metadata).items.size(), 2U);
  EXPECT_EQ(planner.report().missing.size(), 1U);
}

TEST(LoadPlanner, EachClassIsAnErrorWhenSaidSo) {
  Metadata metadata = checkpoint();
  metadata.state_dict_metadata.emplace_back("extra", BytesStorageMetadata{});
  StateDict state = state_with(DType::kFloat64, {4, 8});
  DefaultLoadPlanner lenient;
  EXPECT_NO_THROW((void)plan_of(lenient, state, metadata));
  LoadPlannerOptions options;
  options.report.unexpected = OnMismatch::kError;
  DefaultLoadPlanner no_extras(options);
  EXPECT_EQ(error_of([&] { (void)plan_of(no_extras, state, metadata); }).code(), ErrorCode::kInvalidArgument);
  options.report.unexpected = OnMismatch::kWarn;
  options.report.dtype = OnMismatch::kError;
  DefaultLoadPlanner same_type(options);
  EXPECT_TRUE(mentions(error_of([&] { (void)plan_of(same_type, state, metadata); }),
                       "Type mismatch between saved float32 and current: float64 for model.w"));
  EXPECT_EQ(warnings_of(same_type.report(), options.report).unexpected.size(), 1U);
}

TEST(LoadPlanner, StrictTypesRefuseOnlyWhatLosesValues) {
  LoadPlannerOptions options;
  options.report.strict_dtype = true;
  const Metadata metadata = checkpoint();
  StateDict wide = state_with(DType::kFloat64, {4, 8});
  StateDict narrow = state_with(DType::kBFloat16, {4, 8});
  DefaultLoadPlanner planner(options);
  EXPECT_NO_THROW((void)plan_of(planner, wide, metadata));
  EXPECT_EQ(error_of([&] { (void)plan_of(planner, narrow, metadata); }).code(), ErrorCode::kInvalidArgument);
}

TEST(LoadPlanner, ExactConversionsAreThoseThatKeepEveryValue) {
  EXPECT_TRUE(converts_exactly(DType::kBFloat16, DType::kFloat32));
  EXPECT_TRUE(converts_exactly(DType::kFloat16, DType::kComplex64));
  EXPECT_TRUE(converts_exactly(DType::kUInt8, DType::kInt16));
  EXPECT_TRUE(converts_exactly(DType::kInt8, DType::kFloat16));
  EXPECT_TRUE(converts_exactly(DType::kBool, DType::kUInt8));
  EXPECT_TRUE(converts_exactly(DType::kFloat8E5M2, DType::kFloat16));
  EXPECT_FALSE(converts_exactly(DType::kFloat16, DType::kBFloat16));
  EXPECT_FALSE(converts_exactly(DType::kBFloat16, DType::kFloat16));
  EXPECT_FALSE(converts_exactly(DType::kInt64, DType::kFloat64));
  EXPECT_FALSE(converts_exactly(DType::kUInt16, DType::kFloat16));
  EXPECT_FALSE(converts_exactly(DType::kInt8, DType::kUInt64));
  EXPECT_FALSE(converts_exactly(DType::kComplex64, DType::kFloat64));
  EXPECT_FALSE(converts_exactly(DType::kFloat4E2M1FNx2, DType::kFloat32));
}

TEST(LoadPlanner, BoxOfWhichOnlyAPartIsStoredIsAnError) {
  Metadata metadata = checkpoint();
  std::get<TensorStorageMetadata>(metadata.state_dict_metadata[0].second).chunks = {{{0, 0}, {3, 8}}};
  StateDict state = state_with(DType::kFloat32, {4, 8});
  DefaultLoadPlanner planner;
  const Error error = error_of([&] { (void)plan_of(planner, state, metadata); });
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(error, "8 elements of model.w")) << error.what();
  LoadPlannerOptions options;
  options.report.incomplete = OnMismatch::kIgnore;
  DefaultLoadPlanner as_torch(options);
  EXPECT_EQ(plan_of(as_torch, state, metadata).items.size(), 2U);
}

TEST(LoadPlanner, EmptyDictsThatTorchDidNotSaveAreNotMissed) {
  const Metadata metadata = checkpoint();
  StateDict state = state_with(DType::kFloat32, {4, 8});
  state.set("hooks", Dict{});
  DefaultLoadPlanner planner;
  EXPECT_EQ(plan_of(planner, state, metadata).items.size(), 2U);
  EXPECT_TRUE(planner.report().clean());
}

TEST(LoadPlanner, KeysOfTorch23AreFound) {
  Metadata metadata;
  metadata.state_dict_metadata.emplace_back("optimizer", BytesStorageMetadata{});
  StateDict state;
  state.set("optimizer", Dict{{"lr", Value(0.1)}});
  DefaultLoadPlanner planner;
  const LoadPlan plan = plan_of(planner, state, metadata);
  ASSERT_EQ(plan.items.size(), 1U);
  planner.load_bytes(plan.items[0], Value(Dict{{"lr", Value(0.5)}}));
  EXPECT_EQ(state.find("optimizer")->get<Dict>().find("lr")->get<double>(), 0.5);
}

TEST(LoadPlanner, ShardsAreFoundByOffsetAndMustFit) {
  const Metadata metadata = checkpoint();
  ShardedTensor sharded{DType::kFloat32, {4, 8}, {}};
  for (const std::int64_t row : {0, 2}) {
    sharded.shards.push_back({{{row, 0}, {2, 8}}, Tensor::zeros(DType::kFloat32, {2, 8})});
  }
  StateDict state;
  state.set("model.w", sharded);
  DefaultLoadPlanner planner;
  const LoadPlan plan = plan_of(planner, state, metadata);
  ASSERT_EQ(plan.items.size(), 2U);
  EXPECT_EQ(planner.resolve_tensor(plan.items[1]).data, sharded.shards[1].data.view().data);
  const auto lookup = [&](const MetadataIndex& index) {
    return error_of([&] { (void)planner.lookup_tensor(index); }).message();
  };
  EXPECT_EQ(lookup({"x", Shape{0}, {}}), "Could not find FQN: 'x'");
  EXPECT_EQ(lookup({"model.w", Shape{1, 0}, {}}),
            "Could not find shard at 'torch.Size([1, 0])' for FQN: 'model.w'");
  sharded.shards[1].box.offsets[0] = 3;
  state.set("model.w", sharded);
  EXPECT_EQ(error_of([&] { (void)plan_of(planner, state, metadata); }).code(), ErrorCode::kInvalidArgument);
}

TEST(LoadPlanner, EmptyStateIsBuiltFromTheCheckpoint) {
  Metadata metadata = checkpoint();
  PathMap paths;
  paths.add("model.w", {"model", "w"});
  paths.add("step", {"step"});
  metadata.planner_data = paths;
  StateDict state;
  EmptyStateDictLoadPlanner planner(std::vector<std::string>{"model"});
  const LoadPlan plan = plan_of(planner, state, metadata);
  ASSERT_EQ(plan.items.size(), 1U);
  EXPECT_EQ(state.size(), 1U);
  EXPECT_EQ(state.find("model")->get<Dict>().find("w")->get<Tensor>().view().shape, (Shape{4, 8}));
  EXPECT_EQ(error_of([&] { (void)plan_of(planner, state, metadata); }).code(), ErrorCode::kInvalidArgument);
}

TEST(LoadPlanner, PlanWithoutMetadataIsAnError) {
  StateDict state;
  DefaultLoadPlanner planner;
  planner.set_up_planner(state, nullptr, true);
  EXPECT_EQ(error_of([&] { (void)planner.create_local_plan(); }).code(), ErrorCode::kInvalidArgument);
}

TEST(ShareReads, EveryByteIsReadOnceAndTheReadersAreBalanced) {
  Metadata metadata;
  for (const char* fqn : {"a", "b", "c", "d"}) {
    metadata.state_dict_metadata.emplace_back(fqn, tensor(DType::kFloat32, {8}));
  }
  Flattened entries;
  for (const char* fqn : {"a", "b", "c", "d"}) {
    entries.push_back({fqn, {fqn}, Tensor::zeros(DType::kFloat32, {8})});
  }
  const LoadPlan one = create_default_local_load_plan(entries, metadata);
  const auto plans = share_reads({one, one}, &metadata);
  const std::vector<SharedRead> first{{0, 0, {1}}, {1, 1, {}}, {2, 0, {1}}, {3, 1, {}}};
  const std::vector<SharedRead> second{{0, 0, {}}, {1, 1, {0}}, {2, 0, {}}, {3, 1, {0}}};
  EXPECT_EQ(plans[0].shared, first);
  EXPECT_EQ(plans[1].shared, second);
  EXPECT_EQ(plans[0].items, one.items);
}

TEST(ShareReads, DifferentPartsOfAChunkAreReadByWhoWantsThem) {
  const Metadata metadata = checkpoint();
  std::vector<LoadPlan> all;
  for (const std::int64_t row : {0, 2}) {
    ShardedTensor part{DType::kFloat32, {4, 8}, {}};
    part.shards.push_back({{{row, 0}, {2, 8}}, Tensor::zeros(DType::kFloat32, {2, 8})});
    all.push_back(create_default_local_load_plan({{"model.w", {"model.w"}, part}}, metadata));
  }
  for (const LoadPlan& plan : share_reads(all, nullptr)) EXPECT_TRUE(plan.shared.empty());
}

TEST(ShareReads, PlannerSharesOnlyWhenAsked) {
  const Metadata metadata = checkpoint();
  StateDict state = state_with(DType::kFloat32, {4, 8});
  LoadPlannerOptions options;
  DefaultLoadPlanner all(options);
  const LoadPlan plan = plan_of(all, state, metadata);
  EXPECT_TRUE(all.create_global_plan({plan, plan})[0].shared.empty());
  options.replicas = ReplicaReads::kReadOnce;
  DefaultLoadPlanner once(options);
  (void)plan_of(once, state, metadata);
  EXPECT_EQ(once.create_global_plan({plan, plan})[0].shared.size(), 2U);
}

}  // namespace load_planner_test
}  // namespace cairn
