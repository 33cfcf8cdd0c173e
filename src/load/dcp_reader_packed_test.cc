// Compressed tensors that are larger than the budget: they stream, and what arrives is right or an error.
#include <gtest/gtest.h>

#include "format/zstd_sink.h"
#include "testing/errors.h"
#include "testing/reader.h"

namespace cairn {
namespace {

constexpr std::uint64_t kBudget = 8U << 20;  // a quarter of it is for items in memory
const Shape kShape{900, 1000};

std::string packed(std::string_view plain) {
  StringSink sink;
  ZstdSink zstd(sink);
  zstd.append(as_bytes(plain));
  zstd.finish();
  return std::move(sink.text);
}

class PackedTensor : public testing::Test {
 protected:
  void SetUp() override {
    if (!zstd_is_built_in()) GTEST_SKIP() << "no libzstd";
  }

  std::shared_ptr<FileSystem> stored(const std::string& plain, bool manifest) const {
    DcpFiles files;
    files.with_manifest = manifest;
    files.tensor("w", kShape);
    std::get<TensorStorageMetadata>(files.metadata.state_dict_metadata[0].second).chunks = {
        Box::whole(kShape)};
    files.item({"w", Shape{0, 0}, std::nullopt}, "__0_0.distcp", packed(plain), {"stream.zstd/1"});
    return files.in_memory();
  }

  // A box of it, filled from the checkpoint.
  static Tensor load_box(const std::shared_ptr<FileSystem>& files, const Box& box) {
    Tensor to = Tensor::zeros(DType::kFloat32, box.sizes);
    StateDict state = state_of("w", Value(ShardedTensor{DType::kFloat32, kShape, {{box, to}}}));
    (void)read(files, state, {.memory_budget = kBudget});
    return to;
  }

  const Tensor all = filled(DType::kFloat32, kShape);
};

TEST_F(PackedTensor, ArrivesWholeAndInParts) {
  for (const bool manifest : {true, false}) {
    const auto files = stored(torch_bytes(all), manifest);
    for (const Box& box :
         {Box::whole(kShape), Box{{0, 0}, {1, 1000}}, Box{{700, 10}, {200, 37}}, Box{{899, 999}, {1, 1}}}) {
      Tensor expected = Tensor::zeros(DType::kFloat32, box.sizes);
      copy(all.view().narrow(box), expected.view());
      EXPECT_TRUE(equal(load_box(files, box), expected)) << to_string(box);
    }
  }
}

TEST_F(PackedTensor, ArrivesWhenItWasStoredTransposed) {
  TensorView turned = all.view();
  turned.shape = {900, 1000};
  turned.strides = {1, 900};
  const auto files = stored(torch_bytes(Value(Tensor(turned, all.owner()))), true);
  Tensor expected = Tensor::zeros(DType::kFloat32, kShape);
  copy(turned, expected.view());
  EXPECT_TRUE(equal(load_box(files, Box::whole(kShape)), expected));
}

TEST_F(PackedTensor, DamageIsFoundByTheArchivesChecksumWhateverPartIsWanted) {
  std::string plain = torch_bytes(all);
  plain[plain.size() / 2] = static_cast<char>(plain[plain.size() / 2] ^ 4);
  const auto files = stored(plain, false);
  for (const Box& box : {Box::whole(kShape), Box{{3, 0}, {2, 1000}}, Box{{890, 0}, {2, 5}}}) {
    const Error e = error_of([&] { load_box(files, box); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << to_string(box);
    EXPECT_EQ(e.tensor(), "w");
    EXPECT_TRUE(mentions(e, "__0_0.distcp")) << e.what();
  }
}

}  // namespace
}  // namespace cairn
