#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "cairn/checkpoint.h"
#include "checkpoint/open_files.h"
#include "format/dcp_metadata.h"
#include "testing/checkpoints.h"
#include "testing/errors.h"

namespace cairn {
namespace {

std::string metadata_bytes(const Metadata& metadata) {
  StringSink sink;
  write_dcp_metadata(sink, metadata);
  return std::move(sink.text);
}

// A directory as dcp.save leaves it, with one tensor "w".
void make_dcp(const TestFolder& folder, const std::string& metadata_name = ".metadata", int rank = 0) {
  DcpMaker maker(folder);
  maker.tensor("w", {4});
  maker.chunk("w", {{2 * rank}, {2}}, "__" + std::to_string(rank) + "_0.distcp",
              arange({2}, static_cast<float>(2 * rank)));
  folder.write(metadata_name, metadata_bytes(maker.metadata));
}

std::string safetensors_bytes(float first = 0, std::size_t header_bytes = 0) {
  std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize(std::max(header.size(), header_bytes), ' ');
  std::string bytes(8, '\0');
  store(bytes.data(), static_cast<std::uint64_t>(header.size()));
  bytes += header + std::string(4, '\0');
  store(bytes.data() + bytes.size() - 4, first);
  return bytes;
}

TEST(Open, KnowsADcpDirectory) {
  const TestFolder folder;
  make_dcp(folder);
  EXPECT_EQ(Checkpoint::open(folder.path())->format(), Format::kDcp);
  EXPECT_EQ(Checkpoint::open(folder.path() + "/")->tensors().size(), 1u);
  EXPECT_EQ(Checkpoint::open(folder / ".metadata")->format(), Format::kDcp);
}

TEST(Open, PutsRankLocalMetadataTogether) {
  const TestFolder folder;
  make_dcp(folder, "__0.metadata", 0);
  make_dcp(folder, "__1.metadata", 1);
  for (const std::string& path : {folder.path(), folder / "__1.metadata"}) {
    EXPECT_EQ(floats(Checkpoint::open(path)->read("w")), (std::vector<float>{0, 1, 2, 3})) << path;
  }
}

TEST(Open, KnowsATorchFileByItsContents) {
  const TestFolder folder;
  const std::string path = folder.write("model.bin", torch_bytes(Dict{{"w", Value(arange({2}))}}));
  EXPECT_EQ(Checkpoint::open(path)->format(), Format::kTorchFile);
}

TEST(Open, KnowsASafetensorsFileByItsContents) {
  const TestFolder folder;
  EXPECT_EQ(Checkpoint::open(folder.write("model.bin", safetensors_bytes()))->format(), Format::kSafetensors);
}

TEST(Open, TakesNoSafetensorsFileForAPickle) {
  const TestFolder folder;
  for (std::size_t bytes = 0x180; bytes <= 0x580; bytes += 0x100) {  // it begins with 80 01, 80 02, ...
    const std::string path = folder.write("model.safetensors", safetensors_bytes(7, bytes));
    EXPECT_EQ(floats(Checkpoint::open(path)->read("w")), (std::vector<float>{7})) << bytes;
  }
}

TEST(Open, KnowsAHuggingFaceDirectory) {
  const TestFolder folder;
  folder.write("model.safetensors", safetensors_bytes());
  EXPECT_EQ(Checkpoint::open(folder.path())->format(), Format::kHuggingFace);
}

TEST(Open, SaysThatNothingIsThere) {
  const TestFolder folder;
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder / "none"); }).code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { Checkpoint::open(""); }).code(), ErrorCode::kNotFound);
}

TEST(Open, SaysThatTheSystemRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TestFolder folder;
  const std::string path = folder.write("w.pt", torch_bytes(1));
  ::chmod(path.c_str(), 0);
  const Error e = error_of([&] { Checkpoint::open(path); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), EACCES);
}

TEST(Open, ReportsTheErrnoOfAPathThatCannotBeLookedUp) {
  const Error e = error_of([&] { Checkpoint::open(std::string(5000, 'a')); });
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), ENAMETOOLONG);
}

TEST(Open, SaysThatASaveDidNotFinish) {
  const TestFolder folder;
  folder.write("__0_0.distcp", "");
  const Error e = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(mentions(e, "neither .metadata")) << e.what();
}

TEST(Open, SaysWhatItLookedFor) {
  const TestFolder folder;
  folder.write("notes.txt", "hello");
  folder.write("step-10/.metadata", "x");
  const Error directory = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(directory.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(directory, "'step-10'")) << directory.what();
  const Error file = error_of([&] { Checkpoint::open(folder / "notes.txt"); });
  EXPECT_EQ(file.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(file, "torch.save")) << file.what();
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.write("empty", "")); }).code(), ErrorCode::kUnsupported);
}

TEST(Open, SendsADataFileToItsDirectory) {
  const TestFolder folder;
  make_dcp(folder);
  const Error e = error_of([&] { Checkpoint::open(folder / "__0_0.distcp"); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(mentions(e, "open its directory")) << e.what();
}

TEST(Open, LeavesOldTorchFilesToTheirOwnMessage) {
  const TestFolder folder;
  const std::string path =
      folder.write("old.pt", std::string("\x80\x02\x8a\x0a", 4) + std::string(100, '\0'));
  const Error e = error_of([&] { Checkpoint::open(path); });
  EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
  EXPECT_EQ(e.file(), path);
}

TEST(Open, NamesTheFileThatIsBroken) {
  const TestFolder folder;
  folder.write(".metadata", "not a pickle");
  EXPECT_TRUE(error_of([&] { Checkpoint::open(folder.path()); }).file().ends_with(".metadata"));
  const std::string torch = folder.write("w.pt", "PK\3\4 and then nothing");
  EXPECT_EQ(error_of([&] { Checkpoint::open(torch); }).file(), torch);
}

TEST(Open, NamesFormats) {
  EXPECT_EQ(name_of(Format::kDcp), "dcp");
  EXPECT_EQ(name_of(Format::kTorchFile), "torch");
  EXPECT_EQ(name_of(Format::kSafetensors), "safetensors");
  EXPECT_EQ(name_of(Format::kHuggingFace), "huggingface");
}

TEST(Open, ReadsTheGoldenCheckpoint) {
  const auto checkpoint = Checkpoint::open(CAIRN_SOURCE_DIR "/tests/golden/torch-2.11-two-ranks");
  EXPECT_EQ(floats(checkpoint->read("model.w")), floats(arange({64})));
  EXPECT_EQ(floats(checkpoint->read("model.w", {{3, 2, 1}, {7, 1, 1}})), (std::vector<float>{31, 39}));
  const auto w = *checkpoint->find_tensor("model.w");
  EXPECT_EQ(checkpoint->tensors()[w].chunks, 2u);
  EXPECT_EQ(checkpoint->tensors()[w].files, 2u);
  const Tensor r = checkpoint->read("model.r");
  ASSERT_EQ(r.view().dtype, DType::kBFloat16);
  Tensor widened = Tensor::empty(DType::kFloat32, r.view().shape);
  copy(r.view(), widened.view());
  EXPECT_EQ(floats(widened), floats(arange({16})));
  const Tensor plain = checkpoint->read("model.plain");
  ASSERT_EQ(plain.view().dtype, DType::kInt64);
  ASSERT_EQ(plain.view().shape, Shape{3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(load<std::int64_t>(plain.bytes().data() + 8 * i), 1);
  EXPECT_EQ(floats(checkpoint->read("nested.list.2.a")), (std::vector<float>{0, 0}));
  EXPECT_EQ(checkpoint->object("step"), Value(7));
  EXPECT_EQ(checkpoint->object("lr"), Value(0.5));
  EXPECT_EQ(checkpoint->object("name"), Value("hello"));
  EXPECT_EQ(checkpoint->object("nested.list.0"), Value(1));
  EXPECT_EQ(checkpoint->object("nested.list.1"), Value(2));
  EXPECT_EQ(checkpoint->object("nested.none"), Value(None{}));
  EXPECT_EQ(checkpoint->object("nested.tuple"), Value(Tuple{{Value(1), Value("b")}}));
  EXPECT_EQ(checkpoint->tensors().size(), 4u);
  EXPECT_EQ(checkpoint->objects().size(), 7u);
  for (const FileSummary& file : checkpoint->files()) {
    EXPECT_TRUE(file.referenced) << file.name;
    EXPECT_EQ(file.size, file.needed) << file.name;
  }
}

TEST(Open, IsReadByManyThreadsAtOnce) {
  const auto checkpoint = Checkpoint::open(CAIRN_SOURCE_DIR "/tests/golden/torch-2.11-two-ranks");
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) good += floats(checkpoint->read("model.w")) == floats(arange({64}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 200);
}

TEST(OpenFiles, OpensAFileOnceAndDropsTheOldestWhenFull) {
  const TestFolder folder;
  for (const char* name : {"a", "b", "c"}) folder.write(name, name);
  const OpenFiles files(posix_file_system(folder.path()), {}, 2);
  const auto a = files.get("a");
  EXPECT_EQ(files.get("a"), a);
  const auto b = files.get("b");
  EXPECT_EQ(files.get("a"), a);
  files.get("c");  // "b" was used least recently
  EXPECT_EQ(files.get("a"), a);
  EXPECT_NE(files.get("b"), b);
  EXPECT_EQ(read_all(*b), "b") << "whoever holds a dropped file may go on reading it";
}

}  // namespace
}  // namespace cairn
