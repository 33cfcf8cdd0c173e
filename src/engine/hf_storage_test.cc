#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/test_errors.h"
#include "base/test_folder.h"
#include "cairn/cairn.h"
#include "cairn/hugging_face.h"
#include "engine/test_dcp.h"
#include "engine/test_states.h"
#include "format/safetensors.h"
#include "format/sharding_info.h"

namespace cairn {
namespace {

StateDict model_state(int rank, int ranks, int version, bool by_columns = false) {
  StateDict state = trainer_state(rank, ranks, version, by_columns);
  StateDict tensors;
  tensors.set("model", *state.find(Key("model")));
  tensors.set("optim", *state.find(Key("optim")));
  return tensors;
}

std::string safetensors_bytes(const std::vector<std::pair<std::string, Tensor>>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
  StringSink sink;
  write_safetensors(sink, tensors, metadata);
  return std::move(sink.text);
}

struct HfStorage : testing::Test {
  std::shared_ptr<FileSystem> files = memory_file_system();

  void save_on(int ranks, int version, HfWriteOptions options = {.sharded = true}) {
    run_ranks(ranks, [&](Group& group) {
      const auto writer = hf_writer(files, options);
      save(model_state(group.rank(), ranks, version), "", {.group = &group, .writer = writer.get()});
    });
  }
  void load_on(int ranks, int version, bool by_columns) {
    run_ranks(ranks, [&](Group& group) {
      StateDict state = model_state(group.rank(), ranks, -1, by_columns);
      const auto reader = hf_reader(files);
      load(state, "", {.group = &group, .reader = reader.get()});
      EXPECT_EQ(Value(state), Value(model_state(group.rank(), ranks, version, by_columns)));
    });
  }
  StateDict load_new(const HfReadOptions& options = {}) {
    const auto reader = hf_reader(files, options);
    return load_into_new("", std::nullopt, {.reader = reader.get()});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const FileEntry& file : files->list()) found.push_back(file.name);
    return found;
  }
  void index(const std::vector<std::pair<std::string, std::string>>& weight_map) {
    put_file(*files, "model.safetensors.index.json", write_safetensors_index({weight_map, 1}));
  }
};

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

// --- consolidation ---

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
      if (name == "model.b" || name == "model.scalar")
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

// --- quantised tensors ---

Tensor bytes_of(DType dtype, Shape shape, int seed, int mask) {
  Tensor tensor = Tensor::empty(dtype, std::move(shape));
  std::uint32_t state = static_cast<std::uint32_t>(seed);
  for (std::byte& byte : tensor.bytes()) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>((state >> 24) & static_cast<std::uint32_t>(mask));
  }
  return tensor;
}

struct HfQuantized : HfStorage {
  const HfReadOptions options{.dequantize = Dequantize{DType::kFloat32, 16}};

  void write(const Shape& scales = {5, 3}) {
    put_file(*files, "a.safetensors",
             safetensors_bytes({{"x.weight", bytes_of(DType::kFloat8E4M3FN, {70, 40}, 1, 0x7e)},
                                {"y_blocks", bytes_of(DType::kUInt8, {6, 5, 4, 8}, 2, 0xff)},
                                {"plain", arange({3})}}));
    put_file(*files, "b.safetensors",
             safetensors_bytes({{"x.weight_scale_inv", arange(scales, 0.5F)},
                                {"y_scales", bytes_of(DType::kUInt8, {6, 5, 4}, 3, 0x7f)}}));
  }
  // A tensor cut over ranks, put together from what they loaded.
  void expect_same_when_cut(const std::string& name, const Tensor& whole) {
    const Shape shape = whole.view().shape;
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      for (const int ranks : {2, 3}) {
        const MeshLayout layout{{{ranks}}, {Placement::shard(static_cast<int>(d))}};
        run_ranks(ranks, [&](Group& group) {
          const Box box = layout.box(shape, group.rank());
          const Tensor mine = Tensor::zeros(DType::kFloat32, box.sizes);
          StateDict state;
          state.set(name, Value(layout.shard(mine, shape, group.rank())));
          const auto reader = hf_reader(files, options);
          load(state, "", {.group = &group, .reader = reader.get()});
          const Tensor wanted = Tensor::empty(DType::kFloat32, box.sizes);
          copy(whole.view().narrow(box), wanted.view());
          EXPECT_EQ(floats(mine), floats(wanted)) << name << " " << d;
        });
      }
    }
  }
};

TEST_F(HfQuantized, EveryCutOfATensorIsThatPartOfTheWhole) {
  write();
  const StateDict all = load_new(options);
  const Tensor x = all.find(Key("x.weight"))->get<Tensor>(), y = all.find(Key("y_blocks"))->get<Tensor>();
  EXPECT_EQ(x.view().shape, (Shape{70, 40}));
  EXPECT_EQ(y.view().shape, (Shape{6, 5, 64}));
  EXPECT_EQ(x.view().dtype, DType::kFloat32);
  EXPECT_EQ(floats(all.find(Key("plain"))->get<Tensor>()), (std::vector<float>{0, 1, 2}));
  expect_same_when_cut("x.weight", x);
  expect_same_when_cut("y_blocks", y);
  EXPECT_EQ(load_new().find(Key("x.weight"))->get<Tensor>().view().dtype, DType::kFloat8E4M3FN);
}

TEST_F(HfQuantized, ADestinationOfAnotherTypeIsConverted) {
  write();
  const StateDict all = load_new(options);
  StateDict state;
  const Tensor half = Tensor::zeros(DType::kFloat64, {70, 40});
  state.set("x.weight", Value(half));
  const auto reader = hf_reader(files, options);
  load(state, "", {.reader = reader.get()});
  const Tensor back = Tensor::empty(DType::kFloat32, {70, 40});
  copy(half.view(), back.view());
  EXPECT_EQ(floats(back), floats(all.find(Key("x.weight"))->get<Tensor>()));
}

TEST_F(HfQuantized, ScalesThatDoNotFitAreAnErrorThatNamesTensorAndFile) {
  write({5, 2});
  const Error error = error_of([&] { load_new(options); });
  EXPECT_TRUE(mentions(error, "x.weight") && mentions(error, "b.safetensors") && mentions(error, "[5, 3]"))
      << error.what();
}

TEST_F(HfQuantized, OtherSchemesAreUnsupported) {
  put_file(*files, "a.safetensors",
           safetensors_bytes({{"x.weight", bytes_of(DType::kFloat8E4M3FN, {2, 4, 4}, 1, 0x7e)},
                              {"x.weight_scale_inv", arange({1, 1})}}));
  EXPECT_TRUE(mentions(error_of([&] { load_new(options); }), "Unsupported quantization types"));
}

}  // namespace
}  // namespace cairn
