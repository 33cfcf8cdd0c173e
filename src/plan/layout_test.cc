#include "cairn/layout.h"

#include <gtest/gtest.h>

#include "cairn/error.h"
#include "testing/errors.h"

namespace cairn {
namespace layout_test {

TEST(Layout, RanksAreNumberedRowByRow) {
  const Mesh mesh{2, 3};
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.coordinate(0), (Shape{0, 0}));
  EXPECT_EQ(mesh.coordinate(4), (Shape{1, 1}));
  EXPECT_EQ(error_of([&] { (void)mesh.coordinate(6); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { (void)mesh.coordinate(-1); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Layout, ReplicatedTensorIsWholeEverywhere) {
  const MeshLayout layout{{4}, {Placement::replicate()}};
  EXPECT_EQ(layout.box({5, 6}, 3), Box::whole({5, 6}));
  EXPECT_EQ(layout.box({0, 6}, 3), Box::whole({0, 6}));
}

TEST(Layout, UnevenPartsShrinkAndEmptyOnesStartAtTheEnd) {
  const MeshLayout layout{{4}, {Placement::shard(0)}};
  EXPECT_EQ(layout.box({5, 6}, 0), (Box{{0, 0}, {2, 6}}));
  EXPECT_EQ(layout.box({5, 6}, 2), (Box{{4, 0}, {1, 6}}));
  EXPECT_EQ(layout.box({5, 6}, 3), (Box{{5, 0}, {0, 6}}));
  EXPECT_EQ(layout.parts({5, 6}, 3).size(), 1U);
}

TEST(Layout, TwoMeshDimensionsCutOneTensorDimensionFromLeftToRight) {
  const MeshLayout layout{{2, 2}, {Placement::shard(0), Placement::shard(0)}};
  EXPECT_EQ(layout.box({5}, 0), (Box{{0}, {2}}));
  EXPECT_EQ(layout.box({5}, 1), (Box{{2}, {1}}));
  EXPECT_EQ(layout.box({5}, 2), (Box{{3}, {1}}));
  EXPECT_EQ(layout.box({5}, 3), (Box{{4}, {1}}));
}

TEST(Layout, FsdpOverTpIsOneBoxPerRank) {
  const MeshLayout layout{{2, 2}, {Placement::strided_shard(0, 2), Placement::shard(0)}};
  EXPECT_EQ(layout.box({8}, 1), (Box{{4}, {2}}));
  EXPECT_EQ(layout.box({8}, 2), (Box{{2}, {2}}));
  EXPECT_EQ(layout.parts({8}, 2).size(), 1U);
}

TEST(Layout, StridedShardAloneIsCutIntoBoxes) {
  const MeshLayout layout{{2}, {Placement::strided_shard(0, 2)}};
  const std::vector<LocalPart> want{{{{0, 0}, {2, 3}}, {0, 0}}, {{{4, 0}, {2, 3}}, {2, 0}}};
  EXPECT_EQ(layout.parts({8, 3}, 0), want);
  EXPECT_EQ(layout.box({8, 3}, 0), (Box{{0, 0}, {4, 3}}));
}

TEST(Layout, ShardsShareTheMemoryOfTheLocalTensor) {
  const MeshLayout layout{{2}, {Placement::strided_shard(0, 2)}};
  const Tensor local = Tensor::zeros(DType::kInt32, {4});
  const ShardedTensor sharded = layout.shard(local, {8}, 1);
  ASSERT_EQ(sharded.shards.size(), 2U);
  EXPECT_EQ(sharded.shards[0].box, (Box{{2}, {2}}));
  EXPECT_EQ(sharded.shards[1].box, (Box{{6}, {2}}));
  EXPECT_EQ(sharded.shards[1].data.view().data, local.view().data + 8);
  EXPECT_EQ(error_of([&] { (void)layout.shard(local, {9}, 0); }).code(), ErrorCode::kInvalidArgument);
}

TEST(Layout, PlacementsThatDoNotFitAreRefused) {
  const auto refuse = [](const MeshLayout& layout, const Shape& shape) {
    return error_of([&] { (void)layout.box(shape, 0); }).code();
  };
  EXPECT_EQ(refuse({{2}, {}}, {4}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse({{2}, {Placement::shard(1)}}, {4}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse({{2}, {Placement::strided_shard(0, 0)}}, {4}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refuse({{2}, {Placement::shard(0)}}, {-4}), ErrorCode::kInvalidArgument);
}

TEST(Layout, PartsWithoutNumberAreALimit) {
  const MeshLayout layout{{2}, {Placement::strided_shard(0, std::int64_t{1} << 40)}};
  EXPECT_EQ(error_of([&] { (void)layout.parts({std::int64_t{1} << 50}, 0); }).code(), ErrorCode::kLimit);
}

}  // namespace layout_test
}  // namespace cairn
