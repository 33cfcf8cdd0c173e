#include "checkpoint/dcp_checkpoint.h"
#include "testing/checkpoints.h"
#include "testing/errors.h"

namespace cairn {
namespace {

struct RankLocal : testing::Test {
  TestFolder folder;

  // "w" cut by rows over two ranks; "same" and "step" on both.
  Metadata rank(int number) {
    DcpMaker maker(folder);
    const std::string file = "__" + std::to_string(number) + "_0.distcp";
    maker.tensor("w", {4});
    maker.chunk("w", {{2 * number}, {2}}, file, arange({2}, static_cast<float>(2 * number)));
    maker.tensor("same", {1});
    maker.chunk("same", {{0}, {1}}, file, arange({1}, 9));
    maker.object("step", file, number);
    if (number == 1) maker.object("only.one", file, "x");
    PathMap paths;
    for (const auto& [name, entry] : maker.metadata.state_dict_metadata) paths.add(name, {name});
    maker.metadata.planner_data = std::move(paths);
    return std::move(maker.metadata);
  }
};

TEST_F(RankLocal, JoinsChunksAndCountsReplicasOnce) {
  std::vector<Metadata> ranks;
  ranks.push_back(rank(0));
  ranks.push_back(rank(1));
  const DcpCheckpoint checkpoint(posix_file_system(folder.path()), merge_rank_local(std::move(ranks)),
                                 {"__0.metadata", "__1.metadata"}, Limits{});
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].chunks, 2u);
  EXPECT_EQ(checkpoint.tensors()[0].files, 2u);
  EXPECT_EQ(checkpoint.tensors()[1].chunks, 1u);
  EXPECT_EQ(floats(checkpoint.read("w")), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(floats(checkpoint.read("same")), std::vector<float>{9});
  EXPECT_EQ(checkpoint.object("step"), Value(0)) << "the first rank's";
  EXPECT_EQ(checkpoint.object("only.one"), Value("x"));
  EXPECT_EQ(std::get<PathMap>(checkpoint.metadata()->planner_data).size(), 4u);
}

TEST_F(RankLocal, WhatARankHasItselfIsItsOwn) {
  std::vector<Metadata> ranks;
  for (const int number : {0, 1}) ranks.push_back(rank(number));
  const DcpCheckpoint seen(posix_file_system(folder.path()), merge_for_rank(ranks, 1),
                           {"__0.metadata", "__1.metadata"}, Limits{});
  EXPECT_EQ(seen.object("step"), Value(1));
  EXPECT_EQ(seen.chunks(*seen.find_tensor("same")).front().file, "__1_0.distcp");
  EXPECT_EQ(floats(seen.read("w")), (std::vector<float>{0, 1, 2, 3})) << "the other half fills in";
}

TEST_F(RankLocal, WhatContradictsARanksOwnIsIgnored) {
  std::vector<Metadata> ranks;
  for (const int number : {0, 1}) ranks.push_back(rank(number));
  std::get<TensorStorageMetadata>(ranks[0].state_dict_metadata[0].second).size = {5};
  ranks[0].state_dict_metadata[1].second = BytesStorageMetadata{};
  const Metadata seen = merge_for_rank(ranks, 1);
  const auto& w = std::get<TensorStorageMetadata>(seen.state_dict_metadata[0].second);
  EXPECT_EQ(w.size, (Shape{4}));
  EXPECT_EQ(w.chunks, (std::vector<Box>{{{2}, {2}}}));
  EXPECT_TRUE(std::holds_alternative<TensorStorageMetadata>(seen.state_dict_metadata[1].second));
}

TEST_F(RankLocal, NamesOnWhichOthersDisagreeAreLeftOut) {
  std::vector<Metadata> ranks;
  for (const int number : {0, 1, 1}) ranks.push_back(rank(number));
  ranks[2].state_dict_metadata[3].second = TensorStorageMetadata{{}, {1}, {}, {}, {}};
  const Metadata seen = merge_for_rank(ranks, 0);
  for (const auto& [name, entry] : seen.state_dict_metadata) EXPECT_NE(name, "only.one");
  EXPECT_EQ(std::get<PathMap>(seen.planner_data).size(), 3U);
}

TEST_F(RankLocal, ChunksOfOthersDoNotLieOverARanksOwn) {
  std::vector<Metadata> ranks;
  for (const int number : {0, 1}) ranks.push_back(rank(number));
  std::get<TensorStorageMetadata>(ranks[0].state_dict_metadata[0].second).chunks[0] = {{0}, {3}};
  const Metadata seen = merge_for_rank(ranks, 1);
  const auto& w = std::get<TensorStorageMetadata>(seen.state_dict_metadata[0].second);
  EXPECT_EQ(w.chunks, (std::vector<Box>{{{2}, {2}}}));
}

TEST_F(RankLocal, RefusesRanksThatDisagree) {
  std::vector<Metadata> ranks;
  ranks.push_back(rank(0));
  ranks.push_back(rank(1));
  auto sizes = ranks;
  std::get<TensorStorageMetadata>(sizes[1].state_dict_metadata[0].second).size = {5};
  EXPECT_EQ(error_of([&] { merge_rank_local(sizes); }).code(), ErrorCode::kCorrupt);
  auto types = ranks;
  std::get<TensorStorageMetadata>(types[1].state_dict_metadata[0].second).properties.dtype = DType::kInt8;
  EXPECT_EQ(error_of([&] { merge_rank_local(types); }).code(), ErrorCode::kCorrupt);
  auto kinds = ranks;
  kinds[1].state_dict_metadata[0].second = BytesStorageMetadata{};
  const Error e = error_of([&] { merge_rank_local(kinds); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.tensor(), "w");
}

}  // namespace
}  // namespace cairn
