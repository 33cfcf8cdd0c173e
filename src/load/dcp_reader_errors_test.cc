// Damaged, foreign and missing files: found, named, and never taken for right.
#include <gtest/gtest.h>

#include "cairn/checkpoint.h"
#include "cairn/planner.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/reader.h"

namespace cairn {
namespace {

TEST(DcpReader, FindsABitFlippedInALargeTensorOfAnotherWriter) {
  const Tensor all = filled(DType::kFloat32, {3000, 4096});
  DcpFiles files;
  files.with_manifest = false;
  files.whole("w", "__0_0.distcp", all);
  const auto in = files.in_memory();
  flip_bit(*in, "__0_0.distcp", std::size_t{8} * (30 << 20));
  StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {3000, 4096})));
  const Error e = error_of([&] { read(in, state, {.threads = 3}); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "CRC-32")) << e.what();
  EXPECT_EQ(e.tensor(), "w");
  EXPECT_TRUE(mentions(e, "__0_0.distcp"));
}

TEST(DcpReader, AnyBitFlippedInADataFileIsFoundByTheManifest) {
  const auto in = small_checkpoint().in_memory();
  const std::size_t bits = 8 * get_file(*in, "__1_0.distcp").size();
  for (std::size_t bit = 0; bit < bits; bit += 61) {
    flip_bit(*in, "__1_0.distcp", bit);
    StateDict state = small_state();
    const Error e = error_of([&] { read(in, state); });
    EXPECT_EQ(e.code(), ErrorCode::kCorrupt) << e.what();
    EXPECT_TRUE(mentions(e, "__1_0.distcp")) << e.what();
    flip_bit(*in, "__1_0.distcp", bit);
  }
}

TEST(DcpReader, AnyBitFlippedInTheMetadataIsFoundByTheManifest) {
  DcpFiles named;  // its files carry the save's id, as cairn's do
  named.object("step", data_file_name(0, 0, named.save_id), 7);
  named.whole("w", data_file_name(1, 0, named.save_id), arange({4, 4}));
  const auto in = named.in_memory();
  const std::size_t bits = 8 * get_file(*in, ".metadata").size();
  for (std::size_t bit = 0; bit < bits; ++bit) {
    flip_bit(*in, ".metadata", bit);
    EXPECT_THROW(dcp_reader(in)->set_up_storage_reader(dcp_reader(in)->fetch_description(), {}), Error)
        << bit;
    flip_bit(*in, ".metadata", bit);
  }
}

TEST(DcpReader, ABitFlippedInTheFilesOfAnotherWriterNeverMakesWrongValues) {
  const auto in = small_checkpoint(false).in_memory();
  const std::size_t bits = 8 * get_file(*in, "__1_0.distcp").size();
  int found = 0;
  for (std::size_t bit = 0; bit < bits; bit += 31) {
    flip_bit(*in, "__1_0.distcp", bit);
    StateDict state = small_state();
    try {
      read(in, state);
      EXPECT_TRUE(is_right(state)) << bit;
    } catch (const Error& e) {
      ++found;
    }
    flip_bit(*in, "__1_0.distcp", bit);
  }
  EXPECT_GT(found, 100);
}

TEST(DcpReader, SaysWhichTensorsWereWrittenBeforeItFailed) {
  const auto in = small_checkpoint().in_memory();
  put_file(*in, "__1_0.distcp", get_file(*in, "__1_0.distcp").substr(0, 10));
  StateDict state = small_state();
  const Error e = error_of([&] { read(in, state); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "the manifest says")) << e.what();
  EXPECT_EQ(floats(state.find("w")->get<Tensor>())[1], 0);  // seen before anything is read

  DcpFiles flipped = small_checkpoint(false);
  const auto other = flipped.in_memory();
  flip_bit(*other, "__1_0.distcp", std::size_t{8} * (get_file(*other, "__1_0.distcp").size() - 1));
  const auto reader = dcp_reader(other, {.threads = 1});
  const Metadata& metadata = reader->set_up_storage_reader(reader->fetch_description(), {});
  DefaultLoadPlanner planner;
  planner.set_up_planner(state, &metadata, true);
  ReadReport report;
  EXPECT_THROW(reader->read_data(planner.create_local_plan(), planner, report), Error);
  EXPECT_EQ(report.written, (std::vector<std::string>{"step", "w"}));
  EXPECT_GT(report.read, 0u);
}

TEST(DcpReader, NamesAMissingFile) {
  const auto in = small_checkpoint().in_memory();
  in->remove("__1_0.distcp");
  StateDict state = small_state();
  const Error e = error_of([&] { read(in, state); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(e, "__1_0.distcp")) << e.what();
}

TEST(DcpReader, RefusesAShortFileOfAnotherWriter) {
  const auto in = small_checkpoint(false).in_memory();
  const std::string whole = get_file(*in, "__1_0.distcp");
  put_file(*in, "__1_0.distcp", whole.substr(0, whole.size() - 1));
  StateDict state = small_state();
  const Error e = error_of([&] { read(in, state); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(e.tensor(), "b");
}

TEST(DcpReader, RefusesPlacesThatNoFileHas) {
  const std::pair<std::int64_t, std::int64_t> lies[] = {
      {-1, 10}, {0, -1}, {std::int64_t{1} << 62, std::int64_t{1} << 62}, {0, std::int64_t{1} << 62}, {5, 40}};
  for (const auto& [offset, length] : lies) {
    DcpFiles files = small_checkpoint(false);
    files.metadata.storage_data.add({"b", Shape{0}, std::nullopt}, {"__1_0.distcp", offset, length, {}, {}});
    StateDict state = small_state();
    const Error e = error_of([&] { read(files.in_memory(), state); });
    EXPECT_TRUE(e.code() == ErrorCode::kCorrupt || e.code() == ErrorCode::kLimit) << e.what();
    // Some are refused with the metadata as a whole.
    EXPECT_TRUE(e.tensor() == "b" || e.file().ends_with(".metadata")) << e.what();
  }
}

TEST(DcpReader, RefusesAChunkOfAnotherShape) {
  DcpFiles files;
  files.with_manifest = false;
  files.tensor("w", {2, 4});
  files.chunk("w", {{0, 0}, {2, 4}}, "__0_0.distcp", arange({4, 2}));
  StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {2, 4})));
  const Error e = error_of([&] { read(files.in_memory(), state); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, "[4, 2]")) << e.what();
}

TEST(DcpReader, WantsTheManifestThatTheSaveWrote) {
  const auto in = small_checkpoint().in_memory();
  const std::string name = manifest_name(DcpFiles().save_id);
  in->remove(name);
  StateDict state = small_state();
  const Error e = error_of([&] { read(in, state); });
  EXPECT_EQ(e.code(), ErrorCode::kCorrupt);
  EXPECT_TRUE(mentions(e, name)) << e.what();
  const ReadReport report = read(in, state, {.verify = Verify::kNone});
  EXPECT_TRUE(is_right(state));
  EXPECT_EQ(report.verified, 0u);
}

TEST(DcpReader, RefusesTheManifestOfAnotherSave) {
  const auto in = small_checkpoint().in_memory();
  DcpFiles other = small_checkpoint();
  other.save_id[0] = std::byte{9};
  const auto elsewhere = other.in_memory();
  put_file(*in, manifest_name(DcpFiles().save_id), get_file(*elsewhere, manifest_name(other.save_id)));
  StateDict state = small_state();
  EXPECT_EQ(error_of([&] { read(in, state); }).code(), ErrorCode::kCorrupt);
}

TEST(DcpReader, RefusesTheFileOfAnotherSaveThatHasTheSameName) {
  const auto in = small_checkpoint().in_memory();
  DcpFiles other = small_checkpoint();
  const auto elsewhere = other.in_memory();
  flip_bit(*elsewhere, "__0_0.distcp", 12);
  put_file(*in, "__0_0.distcp", get_file(*elsewhere, "__0_0.distcp"));
  StateDict state = small_state();
  EXPECT_EQ(error_of([&] { read(in, state); }).code(), ErrorCode::kCorrupt);
}

TEST(DcpReader, SaysThatThereIsNoCheckpoint) {
  const std::shared_ptr<FileSystem> in = memory_file_system();
  StateDict state = small_state();
  Error e = error_of([&] { read(in, state); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(e, "no checkpoint here")) << e.what();
  put_file(*in, "__0_0.distcp", "x");
  e = error_of([&] { read(in, state); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(e, "still running")) << e.what();
}

TEST(DcpReader, GivesEveryReadErrorAsItIs) {
  for (std::uint64_t nth = 1; nth < 40; ++nth) {
    const auto faults = std::make_shared<Faults>();
    std::unique_ptr<FileSystem> memory = memory_file_system();
    small_checkpoint().write(*memory);
    const std::shared_ptr<FileSystem> in = faulty_file_system(std::move(memory), faults);
    faults->fail({.nth = nth, .os_error = EIO, .halfway = true});
    StateDict state = small_state();
    try {
      read(in, state, {.threads = 2});
      EXPECT_EQ(faults->fired(), 0u);
      EXPECT_TRUE(is_right(state));
      return;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kIo) << e.what();
      EXPECT_EQ(e.os_error(), EIO) << e.what();
    }
  }
  ADD_FAILURE() << "there is no end of calls";
}

TEST(DcpReader, DescriptionsCutShortOrBentAreTypedErrors) {
  const auto in = small_checkpoint().in_memory();
  const std::string good = dcp_reader(in)->fetch_description();
  for (std::size_t size = 0; size < good.size(); size += 7)
    EXPECT_THROW(dcp_reader(in)->set_up_storage_reader(good.substr(0, size), {}), Error) << size;
  for (std::size_t at = 0; at < good.size(); at += 3) {
    std::string bent = good;
    bent[at] = static_cast<char>(bent[at] ^ 0x40);
    EXPECT_THROW(dcp_reader(in)->set_up_storage_reader(bent, {}), Error) << at;
  }
}

}  // namespace
}  // namespace cairn
