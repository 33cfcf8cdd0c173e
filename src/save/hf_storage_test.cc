#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>

#include "format/hf_names.h"
#include "format/sharding_info.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/folder.h"
#include "testing/hugging_face.h"

namespace cairn {
namespace {

TEST_F(HfStorage, OneRankWritesAFileAndAnIndex) {
  save_on(1, 5, {});
  EXPECT_EQ(names(),
            (std::vector<std::string>{"model-00001-of-00001.safetensors", "model.safetensors.index.json"}));
  const auto source = files->open("model-00001-of-00001.safetensors");
  const SafetensorsHeader header = read_safetensors_header(*source);
  EXPECT_EQ(header.tensors.size(), 5U);
  const std::map<std::string, std::string> metadata(header.metadata.begin(), header.metadata.end());
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("DCP_VERSION"), "1.0");
  EXPECT_EQ(parse_sharding_info(metadata.at("DCP_SHARDING_INFO"), Limits()).at("model.w"), (Shape{0, 0}));
  const SafetensorsIndex listed = read_safetensors_index(*files->open("model.safetensors.index.json"));
  EXPECT_EQ(listed.weight_map.size(), 5U);
  EXPECT_EQ(listed.total_size, 4U * (37 * 24 + 24 + 1 + 129 * 40));
  load_on(1, 5, false);
  load_on(3, 5, true);
}

TEST_F(HfStorage, EveryRankWritesItsShards) {
  save_on(3, 7);
  for (const std::string& name : names()) EXPECT_TRUE(name.starts_with("shard-0000")) << name;
  for (const int ranks : {1, 2, 4}) {
    load_on(ranks, 7, false);
    load_on(ranks, 7, true);
  }
}

TEST_F(HfStorage, ShardsOfAnOlderSaveDoNotStay) {
  save_on(4, 1);
  save_on(2, 2);
  for (const std::string& name : names()) EXPECT_FALSE(name.starts_with("shard-00003")) << name;
  load_on(1, 2, false);
}

TEST_F(HfStorage, FilesOfTheIndexThatIsReplacedDoNotStay) {
  HfWriteOptions two;
  two.file_of = {
      {"model.w", 2}, {"model.b", 1}, {"model.empty", 1}, {"model.scalar", 1}, {"optim.exp_avg", 2}};
  save_on(1, 1, two);
  EXPECT_EQ(names().size(), 3U);
  EXPECT_EQ(names()[1], "model-00002-of-00002.safetensors");
  load_on(2, 1, false);
  save_on(1, 2, {});
  EXPECT_EQ(names().size(), 2U);
  load_on(1, 2, false);
}

TEST_F(HfStorage, ObjectsAreRefusedByNameOrSkipped) {
  StateDict state;
  state.set("w", Value(numbered({4}, 1)));
  state.set("step", Value(3));
  const auto writer = hf_writer(files);
  const Error error = error_of([&] { save(state, "", {.writer = writer.get()}); });
  EXPECT_TRUE(mentions(error, "'step'"));
  EXPECT_TRUE(names().empty());
  const auto skipping = hf_writer(files, {.objects = HfObjects::kSkip});
  save(state, "", {.writer = skipping.get()});
  EXPECT_EQ(load_new().size(), 1U);
}

TEST_F(HfStorage, RanksDoNotWriteTheSameFile) {
  const auto save_replicas = [&] {
    run_ranks(2, [&](Group& group) {
      const auto writer = hf_writer(files);
      StateDict state;
      state.set("a", part_of(numbered({8, 4}, 1), rows_over(2), group.rank()));
      save(state, "", {.group = &group, .writer = writer.get()});
    });
  };
  EXPECT_TRUE(mentions(error_of(save_replicas), "save sharded"));
  EXPECT_TRUE(names().empty());
}

TEST_F(HfStorage, PartsOfOneTensorOnOneRankAreAllWritten) {
  const Tensor whole = numbered({12, 8}, 3);
  const auto cut = [&](const std::vector<Box>& boxes) {
    ShardedTensor sharded;
    sharded.dtype = DType::kInt32;
    sharded.global_shape = whole.view().shape;
    for (const Box& box : boxes) {
      const Tensor part = Tensor::empty(DType::kInt32, box.sizes);
      copy(whole.view().narrow(box), part.view());
      sharded.shards.push_back({box, part});
    }
    StateDict state;
    state.set("w", Value(sharded));
    return state;
  };
  const std::vector<std::vector<Box>> cuts = {
      {{{0, 0}, {12, 3}}, {{0, 3}, {12, 5}}},                                     // beside each other
      {{{6, 0}, {6, 8}}, {{0, 0}, {6, 8}}},                                       // one after the other
      {{{0, 0}, {5, 3}}, {{0, 3}, {5, 5}}, {{5, 0}, {7, 6}}, {{5, 6}, {7, 2}}}};  // a mosaic
  for (const auto& boxes : cuts) {
    const auto writer = hf_writer(files);
    save(cut(boxes), "", {.writer = writer.get()});
    EXPECT_EQ(names().size(), 2U);
    EXPECT_EQ(*load_new().find(Key("w")), Value(whole));
  }
  // Two ranks with two parts each that make up no box.
  files = memory_file_system();
  run_ranks(2, [&](Group& group) {
    const std::int64_t first = group.rank() * 3;
    const auto writer = hf_writer(files, {.sharded = true});
    save(cut({{{first, 0}, {3, 8}}, {{first + 6, 0}, {3, 8}}}), "",
         {.group = &group, .writer = writer.get()});
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"shard-00001-model-00001-of-00001.safetensors",
                                               "shard-00002-model-00001-of-00001.safetensors",
                                               "shard-00003-model-00001-of-00001.safetensors",
                                               "shard-00004-model-00001-of-00001.safetensors"}));
  EXPECT_EQ(*load_new().find(Key("w")), Value(whole));
}

TEST_F(HfStorage, ASaveThatFailsLeavesTheOldFilesAlone) {
  save_on(1, 1, {});
  const auto before = names();
  const std::atomic<bool> cancelled = true;
  const auto writer = hf_writer(files);
  error_of([&] { save(model_state(0, 1, 2), "", {.writer = writer.get(), .cancelled = &cancelled}); });
  HfWriteOptions incomplete;
  incomplete.file_of = {{"model.w", 1}};
  EXPECT_TRUE(mentions(error_of([&] { save_on(1, 2, incomplete); }), "mapping"));
  EXPECT_EQ(names(), before);
  load_on(1, 1, false);
}

TEST_F(HfStorage, ReadsOnlyWhatIsWanted) {
  put_file(*files, "model.safetensors", safetensors_bytes({{"w", arange({1000, 1000})}}));
  StateDict state;
  const Box box{{100, 0}, {10, 1000}};
  ShardedTensor part;
  part.global_shape = {1000, 1000};
  part.shards.push_back({box, Tensor::zeros(DType::kFloat32, box.sizes)});
  state.set("w", Value(part));
  const auto reader = hf_reader(files);
  const LoadResult result = load(state, "", {.reader = reader.get()});
  EXPECT_EQ(result.read.read, 40000U);
  EXPECT_EQ(floats(part.shards[0].data)[0], 100000.0F);
  EXPECT_EQ(floats(part.shards[0].data)[9999], 109999.0F);
}

TEST_F(HfStorage, BadDirectoriesAreErrorsThatNameTensorAndFile) {
  EXPECT_EQ(error_of([&] { load_new(); }).code(), ErrorCode::kNotFound);
  put_file(*files, "a.safetensors", safetensors_bytes({{"w", arange({4})}}));
  index({{"w", "b.safetensors"}});
  Error error = error_of([&] { load_new(); });
  EXPECT_TRUE(mentions(error, "b.safetensors"));
  index({{"w", "a.safetensors"}, {"v", "a.safetensors"}});
  error = error_of([&] { load_new(); });
  EXPECT_TRUE(mentions(error, "tensor 'v'") && mentions(error, "a.safetensors"));
  index({{"w", "../a.safetensors"}});
  EXPECT_TRUE(mentions(error_of([&] { load_new(); }), "corrupt"));
  files->remove("model.safetensors.index.json");
  put_file(*files, "b.safetensors", safetensors_bytes({{"w", arange({4})}}));
  error = error_of([&] { load_new(); });
  EXPECT_TRUE(mentions(error, "tensor 'w'") && mentions(error, "a.safetensors"));
  const std::string whole = get_file(*files, "a.safetensors");
  put_file(*files, "b.safetensors", safetensors_bytes({{"v", arange({4})}}).substr(0, 70));
  error = error_of([&] { load_new(); });
  EXPECT_TRUE(mentions(error, "b.safetensors") && mentions(error, "corrupt"));
}

TEST_F(HfStorage, ShardsOfTwoSavesAreNotMixed) {
  save_on(2, 1);
  const std::string old = get_file(*files, "shard-00002-model-00001-of-00001.safetensors");
  save_on(3, 1);
  put_file(*files, "shard-00004-model-00001-of-00001.safetensors", old);
  const Error error = error_of([&] { load_on(1, 1, false); });
  EXPECT_TRUE(mentions(error, "two saves") && mentions(error, "shard-0000")) << error.what();
}

// A loss of power must not leave the old index without its files.
TEST_F(HfStorage, OldFilesGoWhenTheNewIndexIsDurable) {
  const auto faults = std::make_shared<Faults>();
  files = faulty_file_system(memory_file_system(), faults);
  HfWriteOptions two_files;
  for (const char* name : {"model.w", "model.b", "model.empty", "model.scalar", "optim.exp_avg"})
    two_files.file_of[name] = 1 + static_cast<int>(two_files.file_of.size() % 2);
  save_on(1, 1, two_files);
  faults->clear();
  save_on(1, 2, {});
  const std::vector<Faults::Call> calls = faults->trace();
  const auto is_index = [](const Faults::Call& call) {
    return call.call == FileCall::kCommit && call.name == kIndexFile;
  };
  const auto is = [](FileCall kind) { return [=](const Faults::Call& call) { return call.call == kind; }; };
  const auto index = std::find_if(calls.begin(), calls.end(), is_index);
  const auto sync = std::find_if(index, calls.end(), is(FileCall::kSync));
  ASSERT_NE(sync, calls.end());
  EXPECT_EQ(std::find_if(calls.begin(), sync, is(FileCall::kRemove)), sync) << "removed too early";
  EXPECT_EQ(std::count_if(sync, calls.end(), is(FileCall::kRemove)), 2);
}

TEST_F(HfStorage, LowSpaceMayBeAWarning) {
  const auto faults = std::make_shared<Faults>();
  files = faulty_file_system(memory_file_system(), faults);
  faults->set_room(100);
  const auto save_with = [&](OnLowSpace low_space) {
    HfWriteOptions options;
    options.write.low_space = low_space;
    const auto writer = hf_writer(files, options);
    StateDict state;
    state.set("w", Value(arange({100})));
    return save(state, "memory", {.writer = writer.get()}).warnings;
  };
  EXPECT_TRUE(mentions(error_of([&] { save_with(OnLowSpace::kError); }), "room for 100"));
  EXPECT_EQ(save_with(OnLowSpace::kWarn).size(), 1U);
}

TEST_F(HfStorage, AMissingShardIsNoticed) {
  save_on(3, 1);
  files->remove("shard-00002-model-00001-of-00001.safetensors");
  const Error error = error_of([&] { load_on(1, 1, false); });
  EXPECT_TRUE(mentions(error, "model.") || mentions(error, "optim.")) << error.what();
}

TEST(HfLinks, AModelInTheCacheOfHuggingFaceIsReadThroughItsLinks) {
  TestFolder folder;
  std::filesystem::create_directories(folder / "blobs");
  std::filesystem::create_directories(folder / "snapshot");
  folder.write("blobs/abc", safetensors_bytes({{"w", arange({4})}}));
  std::filesystem::create_symlink("../blobs/abc", folder / "snapshot/model.safetensors");
  const auto load_it = [&](bool follow) {
    const auto reader = hf_reader(posix_file_system(folder / "snapshot", {.follow_links = follow}));
    return load_into_new("", std::nullopt, {.reader = reader.get()});
  };
  EXPECT_EQ(load_it(true).size(), 1U);
  EXPECT_TRUE(mentions(error_of([&] { load_it(false); }), "not_found"));
}

}  // namespace
}  // namespace cairn
