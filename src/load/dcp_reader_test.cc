#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cairn/checkpoint.h"
#include "cairn/planner.h"
#include "testing/faulty.h"
#include "testing/reader.h"

#ifdef CAIRN_HAVE_ZSTD
#include <zstd.h>
#endif

namespace cairn {
namespace {

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
  EXPECT_EQ(std::memcmp(odd.data, all.bytes().data(), 5 << 20), 0);
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
