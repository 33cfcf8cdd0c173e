#include <sys/stat.h>

#include <filesystem>

#include "cairn/checkpoint.h"
#include "format/safetensors.h"
#include "testing/checkpoints.h"
#include "testing/errors.h"

namespace cairn {
namespace {

using Tensors = std::vector<std::pair<std::string, Tensor>>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string safetensors_bytes(const Tensors& tensors, const Pairs& metadata = {}) {
  StringSink sink;
  write_safetensors(sink, tensors, metadata);
  return std::move(sink.text);
}

std::map<std::string, std::string> facts_of(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> facts;
  for (const auto& [key, text] : checkpoint.facts()) facts[key] = text;
  return facts;
}

struct Safetensors : testing::Test {
  TestFolder folder;
  void write(const std::string& name, const Tensors& tensors, const Pairs& metadata = {}) {
    folder.write(name, safetensors_bytes(tensors, metadata));
  }
  void index(const Pairs& weight_map) {
    folder.write("model.safetensors.index.json", write_safetensors_index({weight_map, 123}));
  }
};

TEST_F(Safetensors, ReadsOneFile) {
  write("m.safetensors", {{"w", arange({2, 3})}, {"s", arange({}, 4)}, {"none", arange({0})}},
        {{"format", "pt"}});
  const auto file = Checkpoint::open(folder / "m.safetensors");
  EXPECT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(floats(file->read("w")), floats(arange({6})));
  EXPECT_EQ(floats(file->read("w", {{0, 2, 1}, {1, 1, 1}})), (std::vector<float>{1, 4}));
  EXPECT_EQ(floats(file->read("s")), std::vector<float>{4});
  EXPECT_EQ(file->read("none").view().shape, Shape{0});
  EXPECT_EQ(facts_of(*file)["metadata format"], "pt");
  ASSERT_EQ(file->files().size(), 1u);
  EXPECT_EQ(file->files()[0].name, "m.safetensors");
  EXPECT_EQ(file->files()[0].size, std::filesystem::file_size(folder / "m.safetensors"));
  EXPECT_EQ(file->files()[0].needed, file->files()[0].size);
  const auto place = file->chunks(*file->find_tensor("w"))[0];
  EXPECT_EQ(place.length, 24u);
  EXPECT_EQ(place.box, Box::whole({2, 3}));
  EXPECT_EQ(error_of([&] { file->object("x"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { file->read_at(9, {}); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(Safetensors, ReadsADirectoryByItsIndex) {
  write("model-00001-of-00002.safetensors", {{"a", arange({2})}});
  write("model-00002-of-00002.safetensors", {{"b", arange({2}, 2)}});
  write("other.safetensors", {{"a", arange({2}, 9)}});
  index({{"b", "model-00002-of-00002.safetensors"}, {"a", "model-00001-of-00002.safetensors"}});
  const auto model = Checkpoint::open(folder.path());
  EXPECT_EQ(model->format(), Format::kHuggingFace);
  ASSERT_EQ(model->tensors().size(), 2u);
  EXPECT_EQ(floats(model->read("a")), (std::vector<float>{0, 1}));
  EXPECT_EQ(floats(model->read("b")), (std::vector<float>{2, 3}));
  for (const FileSummary& file : model->files()) {
    EXPECT_EQ(file.referenced, file.name != "other.safetensors") << file.name;
  }
  EXPECT_EQ(Checkpoint::open(folder / "model.safetensors.index.json")->tensors().size(), 2u);
}

TEST_F(Safetensors, ReportsAFileOfTheIndexThatIsMissing) {
  write("one.safetensors", {{"a", arange({2})}});
  index({{"a", "one.safetensors"}, {"b", "two.safetensors"}, {"c", "one.safetensors"}});
  const auto model = Checkpoint::open(folder.path());
  EXPECT_EQ(floats(model->read("a")), (std::vector<float>{0, 1}));
  const Error missing = error_of([&] { model->read("b"); });
  EXPECT_EQ(missing.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(missing, "'two.safetensors', which is missing")) << missing.what();
  EXPECT_TRUE(mentions(error_of([&] { model->read("c"); }), "does not have it"));
  EXPECT_EQ(facts_of(*model)["missing files"], "1");
  bool seen = false;
  for (const FileSummary& file : model->files()) {
    if (file.name != "two.safetensors") continue;
    seen = true;
    EXPECT_FALSE(file.size.has_value());
    EXPECT_TRUE(file.referenced);
  }
  EXPECT_TRUE(seen);
}

TEST_F(Safetensors, PutsShardsOfOneTensorTogether) {
  const auto info = [](const char* offsets) {
    return Pairs{{"DCP_SHARDING_INFO", std::string(R"({"w": {"saved_offsets": )") + offsets + "}}"},
                 {"DCP_VERSION", "1.0"}};
  };
  write("shard-00001-model-00001-of-00001.safetensors", {{"w", arange({2, 2})}}, info("[0, 0]"));
  write("shard-00002-model-00001-of-00001.safetensors", {{"w", arange({1, 2}, 4)}}, info("[2, 0]"));
  const auto model = Checkpoint::open(folder.path());
  ASSERT_EQ(model->tensors().size(), 1u);
  EXPECT_EQ(model->tensors()[0].shape, (Shape{3, 2}));
  EXPECT_EQ(model->tensors()[0].chunks, 2u);
  EXPECT_EQ(model->tensors()[0].files, 2u);
  EXPECT_EQ(model->tensors()[0].bytes, 24u);
  EXPECT_EQ(floats(model->read("w")), floats(arange({6})));
  EXPECT_EQ(floats(model->read("w", {{1, 2, 1}, {1, 1, 1}})), (std::vector<float>{3, 5}));
  EXPECT_EQ(facts_of(*model).count("metadata DCP_SHARDING_INFO"), 0u);
  EXPECT_EQ(facts_of(*model)["metadata DCP_VERSION"], "1.0");
}

TEST_F(Safetensors, RefusesTheSameNameInTwoFilesWithoutSharding) {
  write("a.safetensors", {{"w", arange({2})}});
  write("b.safetensors", {{"w", arange({2})}});
  const Error e = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.tensor(), "w");
  EXPECT_TRUE(mentions(e, "also in 'a.safetensors'")) << e.what();
}

TEST_F(Safetensors, RefusesShardsThatDiffer) {
  const Pairs first{{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [0]}})"}};
  const Pairs second{{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [2]}})"}};
  write("a.safetensors", {{"w", arange({2})}}, first);
  write("b.safetensors", {{"w", Tensor::zeros(DType::kInt8, {2})}}, second);
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.path()); }).code(), ErrorCode::kCorrupt);
}

TEST_F(Safetensors, RefusesOffsetsOfAnotherRank) {
  write("a.safetensors", {{"w", arange({2})}},
        {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [0, 0]}})"}});
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.path()); }).code(), ErrorCode::kCorrupt);
}

TEST_F(Safetensors, RefusesAnIndexThatLeadsElsewhere) {
  index({{"w", "../m.safetensors"}});
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.path()); }).code(), ErrorCode::kCorrupt);
}

TEST_F(Safetensors, FollowsTheLinksOfAHubCache) {
  write("blobs/0123", {{"w", arange({2})}});
  std::filesystem::create_directories(folder / "snapshots");
  std::filesystem::create_symlink("../blobs/0123", folder / "snapshots/model.safetensors");
  const auto model = Checkpoint::open(folder / "snapshots");
  EXPECT_EQ(floats(model->read("w")), (std::vector<float>{0, 1}));
  EXPECT_TRUE(model->files()[0].size.has_value());
}

// A cache whose store of blobs was cleaned has nothing left; it is no model without tensors.
TEST_F(Safetensors, ALinkThatLeadsNowhereIsAMissingFile) {
  std::filesystem::create_symlink("../blobs/0123", folder / "model.safetensors");
  const Error e = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(e.file().ends_with("model.safetensors"));
}

TEST_F(Safetensors, APipeOrAFolderInPlaceOfAFileIsNoEmptyModel) {
  std::filesystem::create_directories(folder / "folder/model.safetensors");
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder / "folder"); }).code(), ErrorCode::kUnsupported);
  ASSERT_EQ(::mkfifo((folder / "model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.path()); }).code(), ErrorCode::kIo);
}

TEST_F(Safetensors, NamesTheBrokenFile) {
  folder.write("a.safetensors", "nonsense");
  EXPECT_TRUE(error_of([&] { Checkpoint::open(folder.path()); }).file().ends_with("a.safetensors"));
}

}  // namespace
}  // namespace cairn
