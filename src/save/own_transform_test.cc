// What a caller does to items himself, a file for every item, and files that only grow.
#include <gtest/gtest.h>

#include "base/source.h"
#include "cairn/cairn.h"
#include "cairn/verify.h"
#include "checkpoint/dcp_names.h"
#include "format/zstd_sink.h"
#include "testing/crippled.h"
#include "testing/errors.h"
#include "testing/reader.h"
#include "testing/scrambler.h"
#include "testing/states.h"

namespace cairn {
namespace {

StateDict state_for_items(int seed) {
  return {{"large", numbered({700, 1000}, seed)}, {"small", numbered({5}, seed + 1)}, {"step", seed}};
}

class OwnItems : public testing::Test {
 protected:
  SaveResult put(const WriteOptions& write, std::shared_ptr<FileSystem> files = nullptr) {
    return save(state_for_items(7), "here",
                {.files = files == nullptr ? files_ : std::move(files), .write = write});
  }

  void expect_loads(const ReadOptions& options = {}) {
    StateDict loaded = state_for_items(0);
    load(loaded, "here", {.files = files_, .read = options});
    EXPECT_EQ(loaded, state_for_items(7));
  }

  std::vector<std::string> data_files() const {
    std::vector<std::string> names;
    for (const FileEntry& entry : files_->list())
      if (entry.name.ends_with(".distcp")) names.push_back(entry.name);
    return names;
  }

  std::shared_ptr<FileSystem> files_ = memory_file_system();
  std::shared_ptr<Scrambler> scrambler_ = std::make_shared<Scrambler>();
};

TEST_F(OwnItems, EveryItemHasAFileOfItsOwn) {
  const SaveResult result = put({.file_per_item = true});
  EXPECT_EQ(data_files(), (std::vector<std::string>{data_file_name(0, 0, result.save_id),
                                                    data_file_name(0, 1, result.save_id),
                                                    data_file_name(0, 2, result.save_id)}));
  expect_loads({.verify = Verify::kFull});
}

TEST_F(OwnItems, EveryItemHasACompressedFileOfItsOwn) {
  if (!zstd_is_built_in()) GTEST_SKIP() << "no libzstd";
  put({.file_per_item = true, .transforms = {"zstd"}});
  EXPECT_EQ(data_files().size(), 3U);
  expect_loads({.verify = Verify::kFull});
}

TEST_F(OwnItems, ManyItemsHaveFilesOfTheirOwnThoughFewAreWrittenAtATime) {
  StateDict many;
  for (int i = 0; i < 50; ++i) many.set("w" + std::to_string(i), Value(numbered({i}, i)));
  save(many, "here", {.files = files_, .write = {.files_per_rank = 2, .file_per_item = true}});
  EXPECT_EQ(data_files().size(), 50U);
  EXPECT_EQ(load_into_new("here", std::nullopt, {.files = files_}), many);
}

TEST_F(OwnItems, ACallersTransformIsUndoneAndNamedInTheMetadata) {
  for (const bool file_per_item : {false, true}) {
    const SaveResult result = put({.file_per_item = file_per_item, .transform = scrambler_});
    const StorageData& places = result.metadata->storage_data;
    ASSERT_EQ(places.size(), 3U);
    for (std::size_t i = 0; i < places.size(); ++i)
      EXPECT_EQ(places.transforms(i), std::vector<std::string>{Scrambler::kDescriptor});
    expect_loads({.verify = Verify::kFull, .transform = scrambler_});
  }
  EXPECT_EQ(scrambler_->encoded, 6);
  EXPECT_EQ(scrambler_->decoded, 6);
}

TEST_F(OwnItems, ChecksumsAreOfWhatIsInTheFile) {
  put({.transform = scrambler_});
  const std::string name = data_files().at(0);
  flip_bit(*files_, name, 8 * 1000);
  const Error e = error_of([&] { expect_loads({.transform = scrambler_}); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "manifest")) << e.what();
}

TEST_F(OwnItems, WithoutTheTransformTheErrorSaysWhichIsMissing) {
  put({.transform = scrambler_});
  const Error e = error_of([&] { expect_loads(); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(e, Scrambler::kDescriptor)) << e.what();
}

TEST_F(OwnItems, TransformsAreNamedOrTheCallersOwn) {
  EXPECT_EQ(code_of([&] { put({.transforms = {"zstd"}, .transform = scrambler_}); }),
            ErrorCode::kInvalidArgument);
}

TEST_F(OwnItems, WhatIsTooLargeForMemoryIsDecodedOnItsWay) {
  put({.transform = scrambler_});
  expect_loads({.memory_budget = 8U << 20, .transform = scrambler_});
  EXPECT_EQ(scrambler_->decoded, 4) << "the large one twice";
}

TEST_F(OwnItems, ATransformGivesNoMoreThanTheMetadataDeclares) {
  put({.transform = scrambler_});
  for (const std::uint64_t budget : {std::uint64_t{8} << 20, std::uint64_t{256} << 20}) {
    const auto bomb = std::make_shared<Bomb>();
    Limits limits;
    limits.object_bytes = 16 << 20;
    const Error e = error_of(
        [&] { expect_loads({.threads = 1, .memory_budget = budget, .limits = limits, .transform = bomb}); });
    EXPECT_EQ(e.code(), ErrorCode::kLimit) << e.what();
    EXPECT_LT(bomb->given, 200U << 20);
  }
}

// A caller's code that fails is told with what it threw.
class Refuses : public Scrambler {
 public:
  std::unique_ptr<ItemEncoder> encode(const WriteItem&, Store) override {
    throw Error(ErrorCode::kInvalidArgument, "no keys").with_cause("theirs");
  }
  std::unique_ptr<ItemDecoder> decode(const ReadItem&, const std::vector<std::string>&,
                                      std::shared_ptr<const ByteSource>) override {
    throw Error(ErrorCode::kInvalidArgument, "no keys").with_cause("theirs");
  }
};

TEST_F(OwnItems, AFailureOfTheCallersCodeIsToldAsItWas) {
  const auto refuses = std::make_shared<Refuses>();
  const Error saving = error_of([&] { put({.transform = refuses}); });
  EXPECT_TRUE(mentions(saving, "no keys")) << saving.what();
  EXPECT_TRUE(files_->list().empty());
  put({.transform = scrambler_});
  try {
    expect_loads({.transform = refuses});
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& e) {
    EXPECT_EQ(e.failures().at(0).cause(), "theirs") << e.what();
    EXPECT_FALSE(e.failures().at(0).tensor().empty());
  }
}

TEST_F(OwnItems, FilesThatOnlyGrowGetTheSameBytes) {
  const auto grows = std::make_shared<CrippledFileSystem>(*files_, Lacks{.ranged_writes = true});
  const std::shared_ptr<FileSystem> other = memory_file_system();
  const SaveResult one = put({.files_per_rank = 1}, grows), two = put({.files_per_rank = 1}, other);
  EXPECT_EQ(read_all(*files_->open(data_file_name(0, 0, one.save_id))),
            read_all(*other->open(data_file_name(0, 0, two.save_id))));
  expect_loads({.verify = Verify::kFull});
}

// Archives that only torch can read.
class TakesArchives : public DefaultLoadPlanner {
 public:
  bool load_archive(const ReadItem& item, std::string_view archive) override {
    taken.emplace_back(item.storage_index.fqn, archive);
    return true;
  }
  void commit_tensor(const ReadItem&, const TensorView&) override { ADD_FAILURE() << "nothing was read"; }
  std::vector<std::pair<std::string, std::string>> taken;
};

TEST_F(OwnItems, APlannerMayReadAnArchiveThatTheReaderCannot) {
  for (const std::int64_t length : {10, 5000000}) {
    DcpFiles stored;
    stored.tensor("w", {4, 4000000});
    std::get<TensorStorageMetadata>(stored.metadata.state_dict_metadata[0].second).chunks = {
        Box::whole({4, 4000000})};
    const Dict inner = {{"t", Value(arange({length}))}};
    const std::string archive = torch_bytes(Value(inner));
    stored.item({"w", Shape{0, 0}, std::nullopt}, "__0_0.distcp", archive);
    files_ = stored.in_memory();
    StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {4, 4000000})));
    EXPECT_EQ(code_of([&] { load(state, "here", {.files = files_}); }), ErrorCode::kUnsupported);
    TakesArchives planner;
    load(state, "here", {.planner = &planner, .files = files_});
    ASSERT_EQ(planner.taken.size(), 1U);
    EXPECT_EQ(planner.taken[0].second, archive);
  }
}

}  // namespace
}  // namespace cairn
