#include <filesystem>
#include <map>

#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/hugging_face.h"

namespace cairn {
namespace {

struct HfConsolidate : testing::Test {
  TestFolder folder;
  const std::string shards = folder / "shards", out = folder / "out";

  HfConsolidate() {
    run_ranks(3, [&](Group& group) {
      const auto writer = hf_writer(posix_file_system(shards, {.create = true}), {.sharded = true});
      save(model_state(group.rank(), 3, 4), "", {.group = &group, .writer = writer.get()});
    });
  }
  void expect_whole(const std::vector<std::string>& names) {
    const auto checkpoint = Checkpoint::open(out);
    EXPECT_EQ(checkpoint->tensors().size(), names.size());
    for (const TensorSummary& tensor : checkpoint->tensors()) EXPECT_EQ(tensor.chunks, 1U);
    StateDict wanted = model_state(0, 1, 4);
    const Value& model = *wanted.find(Key("model"));
    for (const std::string& name : names) {
      if (name != "model.b" && name != "model.scalar") continue;
      EXPECT_EQ(Value(checkpoint->read(name)), *model.get<Dict>().find(Key(name.substr(6))));
    }
    EXPECT_EQ(Value(checkpoint->read("model.w")), Value(numbered({37, 24}, 4)));
    EXPECT_EQ(Value(checkpoint->read("optim.exp_avg")), Value(numbered({129, 40}, 7)));
  }
};

TEST_F(HfConsolidate, OneProcessMakesWholeTensors) {
  consolidate(shards, out);
  expect_whole({"model.w", "model.b", "model.empty", "model.scalar", "optim.exp_avg"});
  const auto files = posix_file_system(out);
  const SafetensorsHeader header = read_safetensors_header(*files->open("model-00001-of-00001.safetensors"));
  EXPECT_EQ(header.metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
}

TEST_F(HfConsolidate, RanksShareTheFilesAndWhatIsNotMappedIsLeftOut) {
  const std::map<std::string, int> file_of = {{"model.w", 2}, {"model.b", 1}, {"optim.exp_avg", 3}};
  run_ranks(2, [&](Group& group) { consolidate(shards, out, {.file_of = file_of, .group = &group}); });
  expect_whole({"model.w", "model.b", "optim.exp_avg"});
  EXPECT_EQ(posix_file_system(out)->list().size(), 4U);
}

TEST_F(HfConsolidate, ATensorThatNoShardHasIsAnErrorAndLeavesNothing) {
  const Error error = error_of([&] {
    consolidate(shards, out, {.file_of = {{"model.w", 1}, {"nobody", 1}}});
  });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(error.tensor(), "nobody");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(HfConsolidate, AShardThatIsCutOffFailsOnAllRanksAndLeavesNothing) {
  const std::string shard = shards + "/shard-00002-model-00001-of-00001.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 4);
  const auto together = [&] {
    run_ranks(2, [&](Group& group) { consolidate(shards, out, {.group = &group}); });
  };
  EXPECT_TRUE(mentions(error_of(together), "shard-00002"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(HfConsolidate, FilesThatSayNothingOfShardsAreRefused) {
  TestFolder foreign;
  foreign.write("model.safetensors", safetensors_bytes({{"w", arange({4})}}));
  EXPECT_TRUE(mentions(error_of([&] { consolidate(foreign / "", out); }), "No DCP custom metadata"));
}

}  // namespace
}  // namespace cairn
