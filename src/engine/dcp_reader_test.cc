#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_errors.h"
#include "cairn/checkpoint.h"
#include "cairn/planner.h"
#include "engine/test_dcp.h"
#include "storage/faulty.h"

#ifdef CAIRN_HAVE_ZSTD
#include <zstd.h>
#endif

namespace cairn {
namespace {

// Fills `state` from the checkpoint, alone.
ReadReport read(const std::shared_ptr<const FileSystem>& files, StateDict& state,
                const ReadOptions& options = {}) {
  ReadReport report;
  const auto reader = dcp_reader(files, options);
  const Metadata& metadata = reader->set_up_storage_reader(reader->fetch_description(), {});
  DefaultLoadPlanner planner;
  planner.set_up_planner(state, &metadata, true);
  reader->read_data(planner.finish_plan(planner.create_local_plan()), planner, report);
  return report;
}

Tensor filled(DType dtype, const Shape& shape, unsigned seed = 1) {
  Tensor tensor = Tensor::empty(dtype, shape);
  std::mt19937 random(seed);
  for (std::byte& b : tensor.bytes()) b = static_cast<std::byte>(random() & 0x3f);
  return tensor;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.bytes().size() == b.bytes().size() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

StateDict state_of(const std::string& name, const Value& value) {
  StateDict state;
  state.set(name, value);
  return state;
}

// Two small tensors in two files, one cut in two, and an object.
DcpFiles small_checkpoint(bool manifest = true) {
  DcpFiles files;
  files.with_manifest = manifest;
  files.tensor("w", {4, 4});
  files.chunk("w", {{0, 0}, {2, 4}}, "__0_0.distcp", arange({2, 4}));
  files.chunk("w", {{2, 0}, {2, 4}}, "__1_0.distcp", arange({2, 4}, 8));
  files.whole("b", "__1_0.distcp", arange({3}, 100));
  files.object("step", "__0_0.distcp", 7);
  return files;
}

StateDict small_state() {
  StateDict state;
  state.set("w", Value(Tensor::zeros(DType::kFloat32, {4, 4})));
  state.set("b", Value(Tensor::zeros(DType::kFloat32, {3})));
  state.set("step", Value(0));
  return state;
}

bool is_right(const StateDict& state) {
  return floats(state.find("w")->get<Tensor>()) == floats(arange({16})) &&
         floats(state.find("b")->get<Tensor>()) == floats(arange({3}, 100)) &&
         *state.find("step") == Value(7);
}

TEST(DcpReader, FillsTensorsAndReplacesObjects) {
  for (const bool manifest : {true, false}) {
    StateDict state = small_state();
    const ReadReport report = read(small_checkpoint(manifest).in_memory(), state);
    EXPECT_TRUE(is_right(state));
    EXPECT_EQ(report.written, (std::vector<std::string>{"b", "step", "w"}));
    EXPECT_EQ(report.read, report.verified + report.unverified);
    EXPECT_TRUE(!manifest || report.unverified == 0) << report.unverified;
    EXPECT_GT(report.verified, 64u + 12);
    EXPECT_EQ(report.needed, 64u + 12 + torch_bytes(7).size());
  }
}

TEST(DcpReader, LoadsRandomCutsIntoOtherRandomCuts) {
  std::mt19937 random(20);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const std::int64_t rows = 1 + random() % 40, columns = 1 + random() % 60;
    const Tensor all = filled(DType::kFloat32, {rows, columns}, random());
    DcpFiles files;
    files.with_manifest = round % 2 == 0;
    files.tensor("w", {rows, columns});
    const std::int64_t row_cut = random() % (rows + 1), column_cut = random() % (columns + 1);
    for (const auto& [r, rn] : {std::pair(std::int64_t{0}, row_cut), std::pair(row_cut, rows - row_cut)}) {
      for (const auto& [c, cn] :
           {std::pair(std::int64_t{0}, column_cut), std::pair(column_cut, columns - column_cut)}) {
        const Box box{{r, c}, {rn, cn}};
        if (box.empty()) continue;
        Tensor part = Tensor::empty(DType::kFloat32, box.sizes);
        copy(all.view().narrow(box), part.view());
        files.chunk("w", box, fmt::format("__{}_0.distcp", random() % 3), part);
      }
    }
    const std::int64_t from = random() % rows, count = 1 + random() % (rows - from);
    const Box wanted{{from, 0}, {count, columns}};
    const DType dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
    ShardedTensor shard{dtype, {rows, columns}, {{wanted, Tensor::zeros(dtype, wanted.sizes)}}};
    StateDict state = state_of("w", Value(shard));
    read(files.in_memory(), state, {.threads = 2});
    Tensor expected = Tensor::empty(dtype, wanted.sizes);
    copy(all.view().narrow(wanted), expected.view());
    EXPECT_TRUE(equal(state.find("w")->get<ShardedTensor>().shards[0].data, expected));
  }
}

TEST(DcpReader, HonoursTheStridesOfAStoredTensor) {
  const Tensor base = arange({300, 200});
  TensorView turned = base.view();
  turned.shape = {200, 300};
  turned.strides = {1, 200};
  DcpFiles files;
  files.whole("w", "__0_0.distcp", Tensor(turned, base.owner()));
  StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {200, 300})));
  read(files.in_memory(), state);
  const Tensor& loaded = state.find("w")->get<Tensor>();
  Tensor expected = Tensor::empty(DType::kFloat32, {200, 300});
  copy(turned, expected.view());
  EXPECT_TRUE(equal(loaded, expected));
}

TEST(DcpReader, ReadsOneLargeTensorByManyThreads) {
  const Tensor all = filled(DType::kFloat32, {3000, 4096});  // 47 MiB
  for (const bool manifest : {true, false}) {
    DcpFiles files;
    files.with_manifest = manifest;
    files.object("step", "__0_0.distcp", 1);
    files.whole("w", "__0_0.distcp", all);
    StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {3000, 4096})));
    const ReadReport report = read(files.in_memory(), state, {.threads = 3});
    EXPECT_TRUE(equal(state.find("w")->get<Tensor>(), all));
    EXPECT_LE(report.read, report.needed + report.needed / 20);
    // Everything but the archive's own headers.
    EXPECT_LT(report.unverified, manifest ? 1u : 16u << 10);
  }
}

TEST(DcpReader, FillsMemoryThatIsNotAligned) {
  const Tensor all = filled(DType::kUInt8, {5 << 20});
  DcpFiles files;
  files.whole("w", "__0_0.distcp", all);
  Tensor memory = Tensor::empty(DType::kUInt8, {(5 << 20) + 1});
  TensorView odd = memory.view().narrow({{1}, {5 << 20}});
  StateDict state = state_of("w", Value(Tensor(odd, memory.owner())));
  EXPECT_EQ(read(files.in_memory(), state).unverified, 0u);
  EXPECT_TRUE(std::equal(odd.data, odd.data + (5 << 20), all.bytes().begin()));
}

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

TEST(DcpReader, ReadsManySmallItemsInFewReads) {
  DcpFiles files;
  StateDict state;
  for (int i = 0; i < 1000; ++i) {
    files.whole(fmt::format("t{}", i), "__0_0.distcp", arange({16}, static_cast<float>(i)));
    state.set(fmt::format("t{}", i), Value(Tensor::zeros(DType::kFloat32, {16})));
  }
  const auto faults = std::make_shared<Faults>();
  std::unique_ptr<FileSystem> memory = memory_file_system();
  files.write(*memory);
  const std::shared_ptr<FileSystem> in = faulty_file_system(std::move(memory), faults);
  const ReadReport report = read(in, state, {.threads = 2});
  EXPECT_EQ(report.unverified, 0u);
  int reads = 0;
  for (const Faults::Call& call : faults->trace()) reads += call.call == FileCall::kRead ? 1 : 0;
  EXPECT_LT(reads, 10);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(floats(state.find(fmt::format("t{}", i))->get<Tensor>())[0], static_cast<float>(i));
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

TEST(DcpReader, JoinsWhatRanksWroteEachForItself) {
  const std::shared_ptr<FileSystem> in = memory_file_system();
  for (int rank = 0; rank < 2; ++rank) {
    DcpFiles mine;
    mine.rank = rank;
    mine.save_id[5] = static_cast<std::byte>(rank);
    mine.tensor("w", {4, 4});
    const std::string file = fmt::format("__{}_0.distcp", rank);
    mine.chunk("w", {{2 * rank, 0}, {2, 4}}, file, arange({2, 4}, static_cast<float>(8 * rank)));
    mine.object("step", file, 7);
    mine.whole(fmt::format("b{}", rank), file, arange({3}));
    mine.write(*in);
  }
  StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {4, 4})));
  state.set("step", Value(0));
  const ReadReport report = read(in, state);
  EXPECT_EQ(floats(state.find("w")->get<Tensor>()), floats(arange({16})));
  EXPECT_EQ(*state.find("step"), Value(7));
  EXPECT_EQ(report.unverified, 0u);
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

TEST(DcpReader, ReportsProgress) {
  const auto in = small_checkpoint().in_memory();
  const auto reader = dcp_reader(in);
  std::uint64_t done = 0, total = 1;
  ReaderRole role;
  role.progress = [&](const Progress& progress) {
    EXPECT_EQ(progress.phase, "read");
    EXPECT_GE(progress.done, done);
    done = progress.done;
    total = progress.total;
  };
  StateDict state = small_state();
  const Metadata& metadata = reader->set_up_storage_reader(reader->fetch_description(), role);
  DefaultLoadPlanner planner;
  planner.set_up_planner(state, &metadata, true);
  ReadReport report;
  reader->read_data(planner.create_local_plan(), planner, report);
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, report.needed);
}

TEST(DcpReader, LoadsWhatTorchWrote) {
  const std::shared_ptr<FileSystem> in =
      posix_file_system(CAIRN_SOURCE_DIR "/tests/golden/torch-2.11-two-ranks");
  const auto reader = dcp_reader(in);
  const Metadata& metadata = reader->set_up_storage_reader(reader->fetch_description(), {});
  StateDict state;
  EmptyStateDictLoadPlanner planner;
  planner.set_up_planner(state, &metadata, true);
  ReadReport report;
  reader->read_data(planner.create_local_plan(), planner, report);
  EXPECT_EQ(report.written.size(), metadata.state_dict_metadata.size());
  const auto checkpoint = Checkpoint::open(CAIRN_SOURCE_DIR "/tests/golden/torch-2.11-two-ranks");
  for (const FlatEntry& entry : flatten(state)) {
    const auto* tensor = entry.value.get_if<Tensor>();
    if (tensor == nullptr) continue;
    EXPECT_TRUE(equal(*tensor, checkpoint->read(entry.name))) << entry.name;
  }
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

#ifdef CAIRN_HAVE_ZSTD
TEST(DcpReader, UndoesTransforms) {
  const Tensor all = filled(DType::kFloat32, {500, 400});
  const std::string plain = torch_bytes(all);
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 1));
  DcpFiles files;
  files.tensor("w", {500, 400});
  std::get<TensorStorageMetadata>(files.metadata.state_dict_metadata[0].second).chunks = {
      Box::whole({500, 400})};
  files.item({"w", Shape{0, 0}, std::nullopt}, "__0_0.distcp", packed, {"stream.zstd/1"});
  StateDict state = state_of("w", Value(Tensor::zeros(DType::kFloat32, {500, 400})));
  EXPECT_EQ(read(files.in_memory(), state).unverified, 0u);
  EXPECT_TRUE(equal(state.find("w")->get<Tensor>(), all));
}
#endif

}  // namespace
}  // namespace cairn
