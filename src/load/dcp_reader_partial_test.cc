// Loads of parts of a tensor: what is read for them, and what is verified.
#include <gtest/gtest.h>

#include "testing/reader.h"

namespace cairn {
namespace {

// Rows of one tensor of 32 MiB.
struct Partial {
  Tensor all = filled(DType::kFloat32, {2048, 4096});
  DcpFiles files;

  explicit Partial(bool manifest = true) {
    files.with_manifest = manifest;
    files.whole("w", "__0_0.distcp", all);
  }
  ReadReport load(const Box& box, Verify verify) {
    ShardedTensor shard{DType::kFloat32, {2048, 4096}, {{box, Tensor::zeros(DType::kFloat32, box.sizes)}}};
    StateDict state = state_of("w", Value(shard));
    const ReadReport report = read(files.in_memory(), state, {.verify = verify});
    Tensor expected = Tensor::empty(DType::kFloat32, box.sizes);
    copy(all.view().narrow(box), expected.view());
    EXPECT_TRUE(equal(state.find("w")->get<ShardedTensor>().shards[0].data, expected));
    EXPECT_EQ(report.read, report.verified + report.unverified);
    return report;
  }
};

TEST(DcpReader, ReadsRowsAndLittleMore) {
  Partial partial;
  const ReadReport report = partial.load({{100, 0}, {1500, 4096}}, Verify::kUsual);  // 23 MiB
  EXPECT_EQ(report.needed, std::uint64_t{1500} * 4096 * 4);
  EXPECT_LE(report.read, report.needed + report.needed / 20 + (32 << 10));
  EXPECT_GT(report.verified, report.needed * 9 / 10);
}

TEST(DcpReader, ReadsColumnsAndLittleMore) {
  for (const bool manifest : {true, false}) {
    Partial partial(manifest);
    const ReadReport report = partial.load({{0, 0}, {2048, 1024}}, Verify::kUsual);  // 4 KiB of each 16
    EXPECT_LE(report.read, report.needed + report.needed / 4);
    EXPECT_GT(report.unverified, report.needed / 2);
  }
}

TEST(DcpReader, VerifiesEverythingWhenAsked) {
  Partial partial;
  const ReadReport report = partial.load({{0, 0}, {2048, 1024}}, Verify::kFull);
  EXPECT_EQ(report.unverified, 0u);
  EXPECT_LE(report.read, 35u << 20);
  EXPECT_EQ(partial.load({{7, 9}, {1, 1}}, Verify::kFull).unverified, 0u);
}

TEST(DcpReader, VerifiesNothingWhenAsked) {
  EXPECT_EQ(Partial().load({{0, 0}, {2048, 4096}}, Verify::kNone).verified, 0u);
}

TEST(DcpReader, WorksInLittleMemory) {
  Partial partial;
  StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat64, {2048, 4096})));
  read(partial.files.in_memory(), state, {.threads = 4, .memory_budget = 1 << 20});
  Tensor expected = Tensor::empty(DType::kFloat64, {2048, 4096});
  copy(partial.all.view(), expected.view());
  EXPECT_TRUE(equal(state.find("w")->get<Tensor>(), expected));
}

}  // namespace
}  // namespace cairn
