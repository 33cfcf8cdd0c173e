#include <gtest/gtest.h>

#include "testing/verify.h"

namespace cairn {
namespace {

// Checkpoints as torch writes them: no manifest, so what is odd stands in the metadata alone.
struct VerifyTorch : testing::Test {
  VerifyTorch() { maker.with_manifest = false; }
  VerifyReport check() { return verify(*maker.in_memory()); }
  DcpFiles maker;
};

TEST_F(VerifyTorch, FindsNothingInASoundCheckpoint) {
  maker.whole("w", "__0_0.distcp", arange({4}));
  maker.object("o", "__0_0.distcp", Value(5));
  const VerifyReport report = check();
  EXPECT_TRUE(report.ok()) << all_of(report);
  EXPECT_GT(report.bytes_checked, 0U);
  ASSERT_EQ(report.unchecked.size(), 1U);  // the description
}

TEST_F(VerifyTorch, FindsElementsThatNoChunkHolds) {
  maker.tensor("w", {4});
  maker.chunk("w", {{0}, {2}}, "__0_0.distcp", arange({2}));
  EXPECT_TRUE(has(check(), ProblemKind::kUncovered, "", "w"));
}

TEST_F(VerifyTorch, FindsChunksAndObjectsWithoutAPlace) {
  maker.tensor("w", {4});
  std::get<TensorStorageMetadata>(maker.metadata.state_dict_metadata[0].second).chunks = {Box::whole({4})};
  maker.metadata.state_dict_metadata.emplace_back("o", BytesStorageMetadata{});
  const VerifyReport report = check();
  EXPECT_TRUE(has(report, ProblemKind::kUncovered, ".metadata", "w"));
  EXPECT_TRUE(has(report, ProblemKind::kUncovered, ".metadata", "o"));
}

TEST_F(VerifyTorch, FindsChunksThatOverlap) {
  maker.tensor("w", {4});
  maker.chunk("w", {{0}, {3}}, "__0_0.distcp", arange({3}));
  maker.chunk("w", {{2}, {2}}, "__0_0.distcp", arange({2}));
  EXPECT_TRUE(has(check(), ProblemKind::kOverlapping, "", "w"));
}

TEST_F(VerifyTorch, FindsItemsThatShareBytes) {
  maker.whole("w", "__0_0.distcp", arange({4}));
  maker.whole("v", "__0_0.distcp", arange({4}));
  const Shape origin{0};
  const auto row = maker.metadata.storage_data.find("w", &origin);
  maker.metadata.storage_data.add({"v", origin, std::nullopt}, maker.metadata.storage_data.info(*row));
  EXPECT_TRUE(has(check(), ProblemKind::kOverlapping, "__0_0.distcp"));
}

TEST_F(VerifyTorch, FindsChunksOutsideOfTheirTensor) {
  maker.tensor("w", {4});
  maker.chunk("w", {{2}, {4}}, "__0_0.distcp", arange({4}));
  EXPECT_TRUE(has(check(), ProblemKind::kMisplaced, "", "w"));
}

TEST_F(VerifyTorch, FindsItemsOfAnotherShapeOrType) {
  maker.tensor("w", {4});
  maker.chunk("w", Box::whole({4}), "__0_0.distcp", arange({2, 2}));
  EXPECT_TRUE(has(check(), ProblemKind::kMismatched, "__0_0.distcp", "w", "[2, 2]"));
  maker.tensor("v", {4}, DType::kInt32);
  maker.chunk("v", Box::whole({4}), "__0_0.distcp", arange({4}));
  EXPECT_TRUE(has(check(), ProblemKind::kMismatched, "__0_0.distcp", "v", "float32"));
  maker.tensor("u", {4});
  maker.chunk("u", Box::whole({4}), "__0_0.distcp", Value("text"));
  EXPECT_TRUE(has(check(), ProblemKind::kMismatched, "__0_0.distcp", "u", "no tensor"));
}

TEST_F(VerifyTorch, FindsItemsThatAreNoArchives) {
  maker.tensor("w", {4});
  maker.chunk("w", Box::whole({4}), "__0_0.distcp", arange({4}));
  maker.metadata.state_dict_metadata.emplace_back("o", BytesStorageMetadata{});
  maker.item({"o", std::nullopt, std::nullopt}, "__0_0.distcp", "rubbish");
  EXPECT_TRUE(has(check(), ProblemKind::kUnreadable, "__0_0.distcp", "o"));
}

TEST_F(VerifyTorch, FindsMissingAndCutFiles) {
  maker.whole("w", "__0_0.distcp", arange({4}));
  maker.whole("v", "__1_0.distcp", arange({4}));
  const Files files = maker.in_memory();
  files->remove("__0_0.distcp");
  put_file(*files, "__1_0.distcp", get_file(*files, "__1_0.distcp").substr(0, 100));
  const VerifyReport report = verify(*files);
  EXPECT_EQ(report.problems.size(), 2U) << all_of(report);
  EXPECT_TRUE(has(report, ProblemKind::kMissing, "__0_0.distcp"));
  EXPECT_TRUE(has(report, ProblemKind::kShort, "__1_0.distcp", "v"));
}

TEST_F(VerifyTorch, FindsAFlippedBitInEveryRecord) {
  maker.whole("w", "__0_0.distcp", arange({64}));
  const Files files = maker.in_memory();
  const ZipReader zip(files->open("__0_0.distcp"), {});
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.size == 0) continue;
    flip_bit(*files, "__0_0.distcp", 8 * (entry.data_offset + entry.size / 2));
    const VerifyReport report = verify(*files);
    EXPECT_TRUE(has(report, ProblemKind::kFlipped, "__0_0.distcp", "w")) << entry.name << all_of(report);
    flip_bit(*files, "__0_0.distcp", 8 * (entry.data_offset + entry.size / 2));
  }
}

TEST_F(VerifyTorch, LooksIntoCompressedItems) {
  const Files files = saved(large_state(1), one_file(with_zstd));
  files->remove(manifest_in(*files));
  EXPECT_EQ(verify(*files).problems.size(), 1U) << all_of(verify(*files));
  const StorageInfo place = place_of(*files, "small");
  flip_bit(*files, place.relative_path, static_cast<std::size_t>(place.offset + place.length / 2) * 8);
  EXPECT_TRUE(has(verify(*files), ProblemKind::kUnreadable, place.relative_path, "small") ||
              has(verify(*files), ProblemKind::kFlipped, place.relative_path, "small"));
}

TEST_F(VerifyTorch, DoesNotUnpackBeyondItsMemory) {
  const Files files = saved(large_state(1), one_file(with_zstd));
  files->remove(manifest_in(*files));
  VerifyOptions options;
  options.memory_budget = 2 * kMiB;
  const VerifyReport report = verify(*files, options);
  EXPECT_TRUE(std::any_of(report.unchecked.begin(), report.unchecked.end(), [](const Unchecked& u) {
    return u.why.find("memory budget") != u.why.npos && u.bytes > 0;
  }));
}

}  // namespace
}  // namespace cairn
