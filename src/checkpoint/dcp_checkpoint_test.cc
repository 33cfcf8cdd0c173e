#include "checkpoint/dcp_checkpoint.h"

#include "testing/checkpoints.h"
#include "testing/errors.h"

#ifdef CAIRN_HAVE_ZSTD
#include <zstd.h>
#endif

namespace cairn {
namespace {

struct Dcp : testing::Test {
  TestFolder folder;
  DcpMaker maker{folder};

  std::unique_ptr<Checkpoint> open() {
    return std::make_unique<DcpCheckpoint>(posix_file_system(folder.path()), maker.metadata,
                                           std::vector<std::string>{".metadata"}, Limits{});
  }
  // "w": 0..15 as 4x4, the upper half in one file and the lower in another.
  void two_chunks() {
    maker.tensor("w", {4, 4});
    maker.chunk("w", {{0, 0}, {2, 4}}, "__0_0.distcp", arange({2, 4}));
    maker.chunk("w", {{2, 0}, {2, 4}}, "__1_0.distcp", arange({2, 4}, 8));
  }
};

TEST_F(Dcp, SummarizesTensorsAndObjects) {
  two_chunks();
  maker.object("step", "__0_0.distcp", 7);
  const auto checkpoint = open();
  EXPECT_EQ(checkpoint->format(), Format::kDcp);
  ASSERT_EQ(checkpoint->tensors().size(), 1u);
  const TensorSummary& w = checkpoint->tensors()[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.shape, (Shape{4, 4}));
  EXPECT_EQ(w.bytes, 64u);
  EXPECT_EQ(w.chunks, 2u);
  EXPECT_EQ(w.files, 2u);
  ASSERT_EQ(checkpoint->objects().size(), 1u);
  EXPECT_EQ(checkpoint->objects()[0].name, "step");
  EXPECT_EQ(checkpoint->objects()[0].bytes, torch_bytes(7).size());
}

TEST_F(Dcp, ReadsAcrossChunks) {
  two_chunks();
  const auto checkpoint = open();
  EXPECT_EQ(floats(checkpoint->read("w")), floats(arange({16})));
  EXPECT_EQ(floats(checkpoint->read("w", {{1, 2, 1}, {3, 1, 1}})), (std::vector<float>{7, 11}));
  EXPECT_EQ(floats(checkpoint->read("w", {{0, 2, 3}, {0, 2, 2}})), (std::vector<float>{0, 2, 12, 14}));
  EXPECT_EQ(checkpoint->read("w", {{0, 0, 1}}).view().shape, (Shape{0, 4}));
}

TEST_F(Dcp, ReadsScalarsAndEmptyTensors) {
  maker.tensor("scalar", {});
  maker.chunk("scalar", {}, "__0_0.distcp", arange({}, 5));
  maker.tensor("empty", {0, 3});
  maker.chunk("empty", {{0, 0}, {0, 3}}, "__0_0.distcp", arange({0, 3}));
  const auto checkpoint = open();
  EXPECT_EQ(floats(checkpoint->read("scalar")), std::vector<float>{5});
  EXPECT_EQ(checkpoint->read("empty").view().shape, (Shape{0, 3}));
}

TEST_F(Dcp, SaysWhereChunksLie) {
  two_chunks();
  maker.tensor("lost", {2}).chunks.push_back({{0}, {2}});
  const auto checkpoint = open();
  const auto places = checkpoint->chunks(0);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[1].file, "__1_0.distcp");
  EXPECT_EQ(places[1].offset, 0u);
  EXPECT_EQ(places[1].length, torch_bytes(arange({2, 4}, 8)).size());
  EXPECT_EQ(places[1].box, (Box{{2, 0}, {2, 4}}));
  EXPECT_EQ(checkpoint->chunks(1)[0].file, "");
  EXPECT_EQ(error_of([&] { checkpoint->chunks(2); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(Dcp, NamesTheBoxThatIsMissing) {
  maker.tensor("w", {4, 4});
  maker.chunk("w", {{0, 0}, {2, 4}}, "__0_0.distcp", arange({2, 4}));
  const auto checkpoint = open();
  const Error e = error_of([&] { checkpoint->read("w"); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.tensor(), "w");
  EXPECT_TRUE(mentions(e, "[2:4, 0:4]")) << e.what();
  EXPECT_EQ(floats(checkpoint->read("w", {{1, 1, 1}})), floats(arange({4}, 4)))
      << "what is there can be read";
}

TEST_F(Dcp, RefusesChunksThatOverlap) {
  maker.tensor("w", {3});
  maker.chunk("w", {{0}, {2}}, "__0_0.distcp", arange({2}));
  maker.chunk("w", {{1}, {2}}, "__0_0.distcp", arange({2}));
  EXPECT_EQ(error_of([&] { open()->read("w"); }).code(), ErrorCode::kCorrupt);
}

TEST_F(Dcp, RefusesChunksOfAnotherRank) {
  maker.tensor("w", {3}).chunks.push_back({{0, 0}, {3, 1}});
  EXPECT_EQ(error_of([&] { open()->read("w"); }).code(), ErrorCode::kCorrupt);
}

TEST_F(Dcp, RefusesAnItemOfAnotherShape) {
  maker.tensor("w", {4});
  maker.chunk("w", {{0}, {4}}, "__0_0.distcp", arange({2, 2}));
  const Error e = error_of([&] { open()->read("w"); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "[2, 2]")) << e.what();
  EXPECT_TRUE(e.file().ends_with("__0_0.distcp")) << e.what();
}

TEST_F(Dcp, RefusesAnItemThatIsNoTensor) {
  maker.tensor("w", {2});
  maker.chunk("w", {{0}, {2}}, "__0_0.distcp", "just text");
  EXPECT_EQ(error_of([&] { open()->read("w"); }).code(), ErrorCode::kUnsupported);
}

TEST_F(Dcp, SaysThatAChunkHasNoPlace) {
  maker.tensor("w", {2}).chunks.push_back({{0}, {2}});
  EXPECT_EQ(error_of([&] { open()->read("w"); }).code(), ErrorCode::kCorrupt);
  maker.metadata.foreign_storage_data = Value("of somebody's own");
  EXPECT_EQ(error_of([&] { open()->read("w"); }).code(), ErrorCode::kUnsupported);
}

TEST_F(Dcp, ConvertsAnItemStoredInAnotherType) {
  maker.tensor("w", {2}, DType::kInt32);
  maker.chunk("w", {{0}, {2}}, "__0_0.distcp", arange({2}, 3));
  const Tensor w = open()->read("w");
  EXPECT_EQ(w.view().dtype, DType::kInt32);
  EXPECT_EQ(load<std::int32_t>(w.bytes().data() + 4), 4);
}

TEST_F(Dcp, RefusesFileNamesThatLeadElsewhere) {
  maker.tensor("w", {2}).chunks.push_back({{0}, {2}});
  for (const char* path : {"../other/file", "/etc/hostname", "a/../b"}) {
    StorageInfo place;
    place.relative_path = path;
    place.length = 10;
    maker.metadata.storage_data.add({"w", Shape{0}, std::nullopt}, place);
    const auto checkpoint = open();
    EXPECT_EQ(error_of([&] { checkpoint->read("w"); }).code(), ErrorCode::kCorrupt) << path;
    EXPECT_NO_THROW(checkpoint->files()) << path;
  }
}

TEST_F(Dcp, SaysThatADataFileIsMissingOrTooShort) {
  two_chunks();
  folder.write("__1_0.distcp", "short");
  const auto checkpoint = open();
  EXPECT_EQ(error_of([&] { checkpoint->read("w"); }).code(), ErrorCode::kCorrupt);
  std::filesystem::remove(folder / "__1_0.distcp");
  const Error e = error_of([&] { open()->read("w"); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_EQ(e.tensor(), "w");
}

TEST_F(Dcp, ListsFilesWithWhatTheyNeed) {
  two_chunks();
  std::filesystem::remove(folder / "__1_0.distcp");
  folder.write(".metadata", "x");
  folder.write("notes.txt", "hello");
  std::map<std::string, FileSummary> files;
  for (const FileSummary& file : open()->files()) files[file.name] = file;
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files["__0_0.distcp"].needed, torch_bytes(arange({2, 4})).size());
  EXPECT_EQ(files["__0_0.distcp"].size, files["__0_0.distcp"].needed);
  EXPECT_FALSE(files["__1_0.distcp"].size.has_value());
  EXPECT_TRUE(files["__1_0.distcp"].referenced);
  EXPECT_TRUE(files[".metadata"].referenced);
  EXPECT_FALSE(files["notes.txt"].referenced);
  EXPECT_EQ(files["notes.txt"].size, 5u);
}

TEST_F(Dcp, GivesObjectsBack) {
  maker.object("step", "__0_0.distcp", 7);
  maker.object("tuple", "__0_0.distcp", Tuple{{Value(1), Value("b"), Value(arange({2}))}});
  two_chunks();
  const auto checkpoint = open();
  EXPECT_EQ(checkpoint->object("step"), Value(7));
  EXPECT_EQ(checkpoint->object("tuple"), Value(Tuple{{Value(1), Value("b"), Value(arange({2}))}}));
  const Error absent = error_of([&] { checkpoint->object("stop"); });
  EXPECT_EQ(absent.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(absent, "'step'")) << absent.what();
  EXPECT_EQ(error_of([&] { checkpoint->object("w"); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(Dcp, OffersNearNames) {
  two_chunks();
  maker.object("step", "__0_0.distcp", 7);
  const auto checkpoint = open();
  const Error e = error_of([&] { checkpoint->read("model.w"); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(e, "did you mean 'w'?")) << e.what();
  EXPECT_EQ(error_of([&] { checkpoint->read("step"); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(checkpoint->find_tensor("w"), 0u);
  EXPECT_EQ(checkpoint->find_tensor("step"), std::nullopt);
}

TEST_F(Dcp, DoesNotBelieveATensorLargerThanItsFiles) {
  const std::int64_t huge = std::int64_t{1} << 40;
  maker.tensor("w", {huge});
  maker.chunk("w", {{0}, {huge}}, "__0_0.distcp", arange({2}));
  EXPECT_EQ(error_of([&] { open()->read("w"); }).code(), ErrorCode::kLimit);
}

TEST_F(Dcp, RefusesAShapeWithANegativeDimension) {
  maker.tensor("w", {-1});
  EXPECT_EQ(error_of([&] { open(); }).code(), ErrorCode::kCorrupt);
}

#ifdef CAIRN_HAVE_ZSTD
TEST_F(Dcp, ReadsItemsPackedWithZstd) {
  const std::string plain = torch_bytes(arange({1000}));
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 3));
  maker.tensor("w", {1000}).chunks.push_back({{0}, {1000}});
  maker.store_item({"w", Shape{0}, std::nullopt}, "__0_0.distcp", packed, {"stream.zstd/1"});
  const auto checkpoint = open();
  EXPECT_EQ(floats(checkpoint->read("w", {{10, 2, 1}})), (std::vector<float>{10, 11}));
}
#endif

TEST(StoredExtents, CountsDifferentFilesWhateverTheOrder) {
  Metadata metadata;
  const auto add = [&](const std::string& name, std::int64_t at, const std::string& file,
                       std::int64_t length) {
    StorageInfo place;
    place.relative_path = file;
    place.length = length;
    metadata.storage_data.add({name, Shape{at}, std::nullopt}, place);
  };
  add("b", 0, "f0", 5);
  add("a", 0, "f0", 7);
  add("b", 1, "f1", 6);
  add("a", 1, "f0", 8);
  add("b", 2, "f0", 6);
  add("unknown", 0, "f2", 1);
  for (const char* name : {"a", "b", "nowhere"}) {
    metadata.state_dict_metadata.emplace_back(name, TensorStorageMetadata{});
  }
  const auto extents = stored_extents(metadata);
  ASSERT_EQ(extents.size(), 3u);
  EXPECT_EQ(extents[0].files, 1u);
  EXPECT_EQ(extents[0].first_length, 7u);
  EXPECT_EQ(extents[1].files, 2u);
  EXPECT_EQ(extents[1].first_length, 5u);
  EXPECT_EQ(extents[2].files, 0u);
}

TEST(RankInName, ReadsDataAndMetadataNames) {
  EXPECT_EQ(rank_in_name("__12_3.distcp"), 12u);
  EXPECT_EQ(rank_in_name("__7.metadata"), 7u);
  for (const char* name :
       {"__.metadata", "_1.metadata", "__1", "__a_0.distcp", "__1x.distcp", "__-1.metadata", ".metadata",
        "__99999999999999999999.metadata", "__1.metadata.tmp"}) {
    EXPECT_EQ(rank_in_name(name), std::nullopt) << name;
  }
}

struct DcpFacts : testing::Test {
  Metadata metadata;
  std::string fact(const std::string& name, bool rank_local = false, bool manifest = false) {
    for (const auto& [key, text] : dcp_facts({metadata, 2, rank_local, manifest})) {
      if (key == name) return text;
    }
    return "(none)";
  }
};

TEST_F(DcpFacts, TellsTorchVersionsApart) {
  metadata.written_as = "torch.distributed._shard.checkpoint";
  EXPECT_EQ(fact("written by"), "torch 1.12 or 1.13");
  metadata.written_as = "torch.distributed.checkpoint";
  EXPECT_EQ(fact("written by"), "torch 2.0 to 2.3");
  metadata.storage_meta = StorageMeta{};
  EXPECT_EQ(fact("written by"), "torch 2.4 to 2.6");
  metadata.storage_meta->has_modules = true;
  EXPECT_EQ(fact("written by"), "torch 2.7 or 2.8");
  metadata.version = "1.0.0";
  EXPECT_EQ(fact("written by"), "torch 2.9 or later");
  EXPECT_EQ(fact("written by", false, true), "cairn, in the form of torch 2.9 or later");
}

TEST_F(DcpFacts, TellsHowItWasWritten) {
  StorageInfo place;
  place.relative_path = "__3_0.distcp";
  place.transform_descriptors = {"stream.zstd/1"};
  metadata.storage_data.add({"w", std::nullopt, std::nullopt}, place);
  metadata.planner_data = PathMap();
  metadata.storage_meta.emplace();
  metadata.storage_meta->checkpoint_id = "here";
  metadata.storage_meta->save_id = "abc";
  EXPECT_EQ(fact("ranks"), "1");
  EXPECT_EQ(fact("transforms"), "stream.zstd/1");
  EXPECT_EQ(fact("planner data"), "paths");
  EXPECT_EQ(fact("save id"), "abc");
  EXPECT_EQ(fact("checkpoint id"), "here");
  EXPECT_EQ(fact("checksums"), "zip CRC-32 per record");
  EXPECT_EQ(fact("checksums", false, true), "cairn manifest");
  EXPECT_EQ(fact("metadata"), "(none)");
  EXPECT_EQ(fact("metadata", true), "rank-local, 2 file(s) put together");
  metadata.planner_data = Value("theirs");
  EXPECT_EQ(fact("planner data"), "foreign");
}

}  // namespace
}  // namespace cairn
