#include "cairn/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>

#include "cairn/cairn.h"
#include "format/dcp_metadata.h"
#include "format/safetensors.h"
#include "testing/checkpoints.h"
#include "testing/dcp.h"
#include "testing/errors.h"
#include "testing/folder.h"
#include "testing/open_file.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// A state with tensors of several sizes, nested, and plain objects.
StateDict small_state() {
  StateDict state;
  state.set("model", Dict{{"w", Value(arange({37, 11}))}, {"b", Value(arange({5}, 100))}});
  state.set("scalar", Value(arange({}, 7)));
  state.set("empty", Value(arange({0, 3})));
  state.set("step", Value(1000));
  state.set("opt", Dict{{"betas", Value(Tuple{{Value(0.9), Value(0.99)}})}});
  return state;
}

class Convert : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  std::string dcp() {
    if (!fs::exists(path("dcp"))) save(small_state(), path("dcp"));
    return path("dcp");
  }
  std::vector<std::string> left() const { return names_in(folder_.path()); }
  static std::vector<std::string> names_in(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TestFolder folder_;
};

std::vector<float> values_of(const std::string& path, const std::string& name) {
  return floats(Checkpoint::open(path)->read(name));
}

void expect_small_state(const std::string& path) {
  EXPECT_EQ(values_of(path, "model.w"), floats(arange({37, 11})));
  EXPECT_EQ(values_of(path, "model.b"), floats(arange({5}, 100)));
  EXPECT_EQ(values_of(path, "scalar"), floats(arange({}, 7)));
  EXPECT_EQ(Checkpoint::open(path)->read("empty").view().shape, (Shape{0, 3}));
}

ConvertOptions without_objects() {
  ConvertOptions options;
  options.skip_objects = true;
  return options;
}

TEST_F(Convert, WritesTheTensorsOfADcpCheckpointAsOneSafetensorsFile) {
  const ConvertReport report = convert(dcp(), path("m.safetensors"), without_objects());
  expect_small_state(path("m.safetensors"));
  EXPECT_EQ(report.from, Format::kDcp);
  EXPECT_EQ(report.to, Format::kSafetensors);
  EXPECT_EQ(report.tensors.size(), 4U);
  EXPECT_EQ(report.dropped, (std::vector<std::string>{"step", "opt.betas"}));
  EXPECT_EQ(report.files.front().bytes, fs::file_size(path("m.safetensors")));
  EXPECT_EQ(report.read_back, report.files.front().bytes);
  EXPECT_GE(report.verified, report.bytes);
  EXPECT_EQ(left(), (std::vector<std::string>{"dcp", "m.safetensors"}));
}

TEST_F(Convert, RefusesObjectsForSafetensorsAndNamesThem) {
  const Error e = error_of([&] { convert(dcp(), path("m.safetensors")); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_NE(e.message().find("'step', 'opt.betas'"), std::string::npos) << e.what();
  EXPECT_EQ(left(), (std::vector<std::string>{"dcp"}));
}

TEST_F(Convert, GoesRoundThroughATorchFile) {
  convert(dcp(), path("m.pt"));
  expect_small_state(path("m.pt"));
  const auto file = Checkpoint::open(path("m.pt"));
  EXPECT_EQ(file->object("step"), Value(1000));
  EXPECT_EQ(file->object("opt.betas"), Value(Tuple{{Value(0.9), Value(0.99)}}));
  convert(path("m.pt"), path("again"));
  expect_small_state(path("again"));
  EXPECT_EQ(load_into_new(path("again")), load_into_new(dcp()));
}

TEST_F(Convert, WritesADirectoryOfSafetensorsFilesWithItsIndexLast) {
  ConvertOptions options = without_objects();
  options.max_shard_size = 100;
  const ConvertReport report = convert(dcp(), path("hub/model"), options);
  expect_small_state(path("hub/model"));
  EXPECT_EQ(report.to, Format::kHuggingFace);
  ASSERT_EQ(report.files.size(), 3U);
  EXPECT_EQ(report.files[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(report.files.back().name, "model.safetensors.index.json");
}

TEST_F(Convert, FilesOfAnIndexThatIsReplacedGo) {
  ConvertOptions options = without_objects();
  options.max_shard_size = 100;
  convert(dcp(), path("hub"), options);
  folder_.write("hub/tokenizer.json", "{}");
  folder_.write("hub/model-00001-of-00009.safetensors", "in no index");
  options.shards = 1;
  options.max_shard_size = 0;
  options.overwrite = true;
  convert(dcp(), path("hub"), options);
  expect_small_state(path("hub"));
  EXPECT_EQ(names_in(path("hub")),
            (std::vector<std::string>{"model-00001-of-00001.safetensors", "model-00001-of-00009.safetensors",
                                      "model.safetensors.index.json", "tokenizer.json"}));
}

TEST_F(Convert, TheSourceStaysWhenTheIndexThatIsReplacedNamesIt) {
  fs::create_directories(path("hub"));
  convert(dcp(), path("hub/all.safetensors"), without_objects());
  folder_.write("hub/model.safetensors.index.json",
                R"({"metadata": {}, "weight_map": {"model.w": "all.safetensors"}})");
  ConvertOptions options;
  options.overwrite = true;
  options.to = Format::kHuggingFace;
  convert(path("hub/all.safetensors"), path("hub"), options);
  expect_small_state(path("hub/all.safetensors"));
}

TEST_F(Convert, WritesTheFilesThatAreAskedForByAMapping) {
  ConvertOptions options = without_objects();
  options.file_of = {{"model.w", 1}, {"model.b", 3}, {"scalar", 3}, {"empty", 1}};
  options.only_files = {{3}};
  options.index = false;
  convert(dcp(), path("hub"), options);
  EXPECT_EQ(values_of(path("hub"), "model.b"), floats(arange({5}, 100)));
  EXPECT_FALSE(fs::exists(path("hub/model-00001-of-00003.safetensors")));
  EXPECT_FALSE(fs::exists(path("hub/model.safetensors.index.json")));
  options.only_files = {{1}};
  convert(dcp(), path("hub"), options);
  options.only_files.emplace();
  options.index = true;
  convert(dcp(), path("hub"), options);
  expect_small_state(path("hub"));
}

TEST_F(Convert, NeedsToKnowWhereEachTensorGoes) {
  ConvertOptions options = without_objects();
  options.file_of = {{"model.w", 1}};
  const Error e = error_of([&] { convert(dcp(), path("hub"), options); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.tensor(), "model.b");
  EXPECT_FALSE(fs::exists(path("hub")));
}

TEST_F(Convert, WritesADcpCheckpointAsSeveralRanks) {
  ConvertOptions options;
  options.ranks = 3;
  options.max_item_bytes = 200;
  convert(dcp(), path("three"), options);
  expect_small_state(path("three"));
  EXPECT_EQ(load_into_new(path("three")), load_into_new(dcp()));
  EXPECT_GT(Checkpoint::open(path("three"))->tensors()[0].chunks, 5U);
}

TEST_F(Convert, ChoosesRenamesAndCasts) {
  ConvertOptions options;
  options.keys = {"model.*", "step"};
  options.exclude = {"*.b"};
  options.map = {{"^model\\.(\\w)$", "net.\\1eight"}};
  options.casts = {{"model.*", DType::kFloat64}};
  convert(dcp(), path("m.pt"), options);
  const auto file = Checkpoint::open(path("m.pt"));
  ASSERT_EQ(file->tensors().size(), 1U);
  EXPECT_EQ(file->tensors()[0].name, "net.weight");
  EXPECT_EQ(file->tensors()[0].dtype, DType::kFloat64);
  EXPECT_EQ(file->object("step"), Value(1000));
  double last = 0;
  std::memcpy(&last, file->read("net.weight", {{36, 1, 1}, {10, 1, 1}}).bytes().data(), 8);
  EXPECT_EQ(last, 37 * 11 - 1);
}

TEST_F(Convert, RefusesTwoEntriesOfOneName) {
  ConvertOptions options;
  options.map = {{"^model\\..$", "same"}};
  const Error e = error_of([&] { convert(dcp(), path("m.pt"), options); });
  EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(e.message().find("'model.w' and 'model.b' would both be called 'same'"), std::string::npos)
      << e.what();
}

TEST_F(Convert, RefusesAPatternThatMatchesNothing) {
  ConvertOptions options;
  options.keys = {"modle.*"};
  EXPECT_EQ(error_of([&] { convert(dcp(), path("m.pt"), options); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(Convert, LeavesADestinationThatIsThereAlone) {
  folder_.write("m.pt", "precious");
  for (const char* name : {"m.pt", "dcp2"}) {
    if (std::string(name) == "dcp2") save(small_state(), path(name));
    const Error e = error_of([&] { convert(dcp(), path(name)); });
    EXPECT_EQ(e.code(), ErrorCode::kConflict);
    EXPECT_EQ(e.file(), path(name));
  }
  EXPECT_EQ(fs::file_size(path("m.pt")), 8U);
  ConvertOptions options;
  options.overwrite = true;
  convert(dcp(), path("m.pt"), options);
  expect_small_state(path("m.pt"));
}

TEST_F(Convert, RefusesToWriteOverItsSource) {
  ConvertOptions options;
  options.overwrite = true;
  EXPECT_EQ(error_of([&] { convert(dcp(), dcp() + "/", options); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(Convert, SaysWhatItWouldDoAndDoesNothing) {
  ConvertOptions options;
  options.dry_run = true;
  const ConvertReport report = convert(dcp(), path("a/b/m.pt"), options);
  EXPECT_EQ(report.tensors.size(), 4U);
  EXPECT_EQ(report.objects.size(), 2U);
  EXPECT_GT(report.files.front().bytes, report.bytes);
  EXPECT_EQ(left(), (std::vector<std::string>{"dcp"}));
}

// Flips one byte of the largest data file.
void damage(const std::string& directory) {
  fs::path largest;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const bool data = entry.path().extension() == ".distcp";
    if (data && (largest.empty() || entry.file_size() > fs::file_size(largest))) largest = entry.path();
  }
  std::FILE* file = std::fopen(largest.c_str(), "r+b");
  std::fseek(file, static_cast<long>(fs::file_size(largest) / 2), SEEK_SET);
  const int byte = std::fgetc(file);
  std::fseek(file, -1, SEEK_CUR);
  std::fputc(byte ^ 1, file);
  std::fclose(file);
}

TEST_F(Convert, DoesNotCarryDamageOn) {
  save(small_state(), path("bad"));
  damage(path("bad"));
  for (const char* to : {"m.pt", "m.safetensors", "sub/dcp"}) {
    const Error e = error_of([&] { convert(path("bad"), path(to), without_objects()); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << to;
    EXPECT_NE(e.file().find(".distcp"), std::string::npos);
    EXPECT_EQ(left(), (std::vector<std::string>{"bad"})) << to;
  }
}

TEST_F(Convert, FindsDamageByTheSumsOfAnArchive) {
  convert(dcp(), path("m.pt"));
  const auto chunk = Checkpoint::open(path("m.pt"))->chunks(0).front();
  std::FILE* file = std::fopen(path("m.pt").c_str(), "r+b");
  std::fseek(file, static_cast<long>(chunk.offset + 9), SEEK_SET);
  std::fputc(0x55, file);
  std::fclose(file);
  for (const char* to : {"again.pt", "again.safetensors", "again"}) {
    const Error e = error_of([&] { convert(path("m.pt"), path(to), without_objects()); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << to;
    EXPECT_EQ(e.file(), path("m.pt"));
  }
  EXPECT_EQ(left(), (std::vector<std::string>{"dcp", "m.pt"}));
}

TEST_F(Convert, FindsDamageInAnObject) {
  DcpFiles stock;
  stock.with_manifest = false;
  const std::string text(1000, 'x');
  stock.object("text", "__0_0.distcp", Value(text));
  stock.write(*posix_file_system(path("stock"), {.create = true}));
  convert(path("stock"), path("before"));
  std::string bytes = read_all(*open_file(path("stock/__0_0.distcp")));
  bytes[bytes.find("xxxx") + 500] = 'y';
  folder_.write("stock/__0_0.distcp", bytes);
  for (const char* to : {"m.pt", "dcp2"}) {
    const Error e = error_of([&] { convert(path("stock"), path(to)); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << to;
    EXPECT_EQ(e.tensor(), "text");
    EXPECT_EQ(e.file(), path("stock/__0_0.distcp"));
  }
  EXPECT_EQ(left(), (std::vector<std::string>{"before", "stock"}));
}

TEST_F(Convert, RefusesMoreRanksThanTheBudgetHasBuffersFor) {
  ConvertOptions options;
  options.ranks = 1000;
  options.memory_budget = 16U << 20;
  EXPECT_EQ(error_of([&] { convert(dcp(), path("many"), options); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(left(), (std::vector<std::string>{"dcp"}));
}

TEST_F(Convert, StopsWhenItIsCancelledAndLeavesNothing) {
  const std::atomic<bool> cancelled = true;
  ConvertOptions options = without_objects();
  options.cancelled = &cancelled;
  for (const char* to : {"m.pt", "m.safetensors", "sub/dcp"}) {
    EXPECT_EQ(error_of([&] { convert(dcp(), path(to), options); }).code(), ErrorCode::kCancelled);
  }
  EXPECT_EQ(left(), (std::vector<std::string>{"dcp"}));
}

TEST_F(Convert, NamesATensorThatTheIndexPromisesInVain) {
  ConvertOptions options = without_objects();
  options.max_shard_size = 100;
  convert(dcp(), path("hub"), options);
  fs::remove(path("hub/model-00002-of-00002.safetensors"));
  const Error e = error_of([&] { convert(path("hub"), path("m.pt")); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_EQ(e.tensor(), "model.b");
  EXPECT_NE(e.file().find("model-00002-of-00002.safetensors"), std::string::npos);
}

TEST_F(Convert, ReadsTransformedItems) {
  ConvertOptions options;
  options.transforms = {"zstd"};
  try {
    convert(dcp(), path("small"), options);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kUnsupported) GTEST_SKIP() << e.what();
    throw;
  }
  expect_small_state(path("small"));
  convert(path("small"), path("m.pt"));
  expect_small_state(path("m.pt"));
}

// A few hundred bytes that claim a tensor of 2^60 bytes cost neither time nor memory.
TEST_F(Convert, ATensorThatCannotBeIsRefusedBeforeItIsPlanned) {
  TensorStorageMetadata tensor;
  tensor.properties.dtype = DType::kInt8;
  tensor.size = {1 << 30, 1 << 30};
  tensor.chunks = {Box::whole(tensor.size)};
  Metadata metadata;
  metadata.state_dict_metadata.emplace_back("w", tensor);
  metadata.storage_data.add({"w", Shape{0, 0}, 0}, {"__0_0.distcp", 0, std::int64_t{1} << 60, {}, {}});
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  folder_.write("huge/.metadata", sink.text);
  folder_.write("huge/__0_0.distcp", "x");
  const Error plain = error_of([&] { convert(path("huge"), path("out")); });
  EXPECT_EQ(plain.code(), ErrorCode::kIo);
  EXPECT_EQ(plain.os_error(), ENOSPC);
  ConvertOptions options;
  options.transforms = {"zstd"};
  EXPECT_EQ(error_of([&] { convert(path("huge"), path("out"), options); }).code(), ErrorCode::kLimit);
  EXPECT_EQ(left(), std::vector<std::string>{"huge"});
}

}  // namespace
}  // namespace cairn
