#include "format/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "cairn/error.h"
#include "testing/torch_archive.h"

namespace cairn {
namespace torch_file_test {

using namespace torch_archive;

TEST(TorchFile, DescribesATensorWithoutReadingIt) {
  const Opened o(good());
  const auto& stored = o.file->root().get<StoredTensor>();
  EXPECT_EQ(stored.dtype, DType::kFloat32);
  EXPECT_EQ(stored.shape, (Shape{2, 3}));
  EXPECT_EQ(stored.strides, (Shape{3, 1}));
  ASSERT_EQ(o.file->tensors().size(), 1U);
  const TorchFile::Stored& where = o.file->tensors()[0];
  EXPECT_EQ(where.storage_key, "0");
  EXPECT_EQ(where.storage_bytes, 24U);
  EXPECT_EQ(where.data_offset, o.file->zip().find("data/0")->data_offset);
  EXPECT_EQ(o.bytes.substr(where.data_offset, 24), kSixFloats);
  EXPECT_NE(where.crc, 0U);
}

TEST(TorchFile, LoadReadsTheElements) {
  const Value loaded = Opened(good()).file->load();
  EXPECT_EQ(as_text(loaded.get<Tensor>().bytes()), kSixFloats);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(loaded.get<Tensor>().view().data) % 4096, 0U);
}

class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    read += to.size();
    std::memcpy(to.data(), bytes_.data() + offset, to.size());
  }
  const std::string& name() const override { return name_; }
  mutable std::uint64_t read = 0;

 private:
  std::string bytes_, name_ = "counted";
};

TEST(TorchFile, OpenReadsOnlyDirectoryAndPickleAndLoadReadsEachStorageOnce) {
  constexpr std::uint64_t kBytes = 4 << 20;
  const Tensor big = Tensor::zeros(DType::kUInt8, {static_cast<std::int64_t>(kBytes)});
  StringSink sink;
  write_torch_file(sink, List{big, big});
  const auto source = std::make_shared<CountingSource>(sink.text);
  const auto file = TorchFile::open(source);
  EXPECT_LT(source->read, 256U << 10);
  source->read = 0;
  const Value loaded = file->load();
  EXPECT_EQ(source->read, kBytes);
  EXPECT_EQ(loaded.get<List>()[0].get<Tensor>().view().data, loaded.get<List>()[1].get<Tensor>().view().data);
}

// What an archive may lack, and what it may not be.

TEST(TorchFile, OldArchivesLackByteOrder) { EXPECT_NO_THROW(Opened(without("byteorder"))); }
TEST(TorchFile, VersionMayLieInTheDataFolder) {
  Records records = without("version");
  records.emplace_back(".data/version", "10\n");
  EXPECT_NO_THROW(Opened o(records));
}
TEST(TorchFile, ArchiveWithoutPickleIsRefused) {
  expect_error([] { Opened o(without("data.pkl")); }, ErrorCode::kCorrupt, "no record 'data.pkl'");
}
TEST(TorchFile, ArchiveWithoutVersionIsRefused) {
  expect_error([] { Opened o(without("version")); }, ErrorCode::kCorrupt, "no record 'version'");
}
TEST(TorchFile, VersionThatIsNoNumberIsRefused) {
  for (const char* text : {"three\n", "3x\n", "\n", "99999999999999999999"}) {
    expect_error([&] { Opened o(with("version", text)); }, ErrorCode::kCorrupt, "not a number");
  }
}
TEST(TorchFile, UnknownVersionsAreRefused) {
  for (const char* text : {"0\n", "11\n", "-3\n"}) {
    expect_error([&] { Opened o(with("version", text)); }, ErrorCode::kUnsupported, "1 to 10 are known");
  }
}
TEST(TorchFile, LongVersionIsRefused) {
  expect_error([] { Opened o(with("version", std::string(33, '3'))); }, ErrorCode::kLimit, "");
}
TEST(TorchFile, BigEndianArchiveIsRefused) {
  expect_error([] { Opened o(with("byteorder", "big")); }, ErrorCode::kUnsupported, "big-endian");
}
TEST(TorchFile, OddByteOrderIsRefused) {
  expect_error([] { Opened o(with("byteorder", "middle")); }, ErrorCode::kCorrupt, "neither");
}
TEST(TorchFile, TorchScriptArchiveIsRefused) {
  expect_error([] { Opened o(with("constants.pkl", "x")); }, ErrorCode::kUnsupported, "TorchScript");
  expect_error([] { Opened o(with("code/__torch__.py", "x")); }, ErrorCode::kUnsupported, "TorchScript");
}
TEST(TorchFile, LegacyFormatsAreRefusedWithAdvice) {
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  const std::pair<std::string, std::string> cases[] = {
      {std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15), "before torch 1.6"},
      {tar, "tar archive"},
      {std::string("\x80\x04N.", 4), "bare Python pickle"}};
  for (const auto& [bytes, part] : cases) {
    expect_error([&, b = bytes] { Opened o(b); }, ErrorCode::kUnsupported, part);
    expect_error([&, b = bytes] { Opened o(b); }, ErrorCode::kUnsupported, "torch.save");
  }
}
TEST(TorchFile, NoArchiveAtAllIsRefused) {
  expect_error([] { Opened o(std::string{}); }, ErrorCode::kCorrupt, "");
  expect_error([] { Opened o(std::string("hello")); }, ErrorCode::kCorrupt, "");
}
TEST(TorchFile, BrokenPickleIsRefused) {
  expect_error([] { Opened o(with("data.pkl", std::string("\x80\x02]", 3))); }, ErrorCode::kCorrupt, "");
}
TEST(TorchFile, PickleBeyondTheLimitIsRefused) {
  const std::string bytes = archive(good());
  TorchFileOptions options;
  options.max_pickle_bytes = pickle_of({}).size();
  EXPECT_NO_THROW(TorchFile::open(memory_source(as_bytes(bytes)), options));
  --options.max_pickle_bytes;
  expect_error([&] { TorchFile::open(memory_source(as_bytes(bytes)), options); }, ErrorCode::kLimit, "");
}
TEST(TorchFile, TooManyRecordsAreRefused) {
  const std::string bytes = archive(good());
  TorchFileOptions options;
  options.max_entries = good().size();
  EXPECT_NO_THROW(TorchFile::open(memory_source(as_bytes(bytes)), options));
  --options.max_entries;
  expect_error([&] { TorchFile::open(memory_source(as_bytes(bytes)), options); }, ErrorCode::kLimit, "");
}

// Checksums.

TEST(TorchFile, FlippedBitInAStorageIsFoundByLoad) {
  Opened clean(good());
  std::string bytes = clean.bytes;
  bytes[clean.file->tensors()[0].data_offset + 5] ^= 1;
  const Opened o(bytes);
  expect_error([&] { o.file->load(); }, ErrorCode::kCorrupt, "checksum");
}
TEST(TorchFile, StorageWithoutChecksumIsTaken) {
  StringSink sink;
  ZipWriter zip(sink);
  for (const auto& [name, content] : good()) {
    zip.begin(name, content.size());
    zip.append(as_bytes(content));
    name == "data/0" ? zip.end_with_crc(0) : zip.end();
  }
  zip.finish();
  const Opened o(sink.text);
  EXPECT_EQ(o.file->tensors()[0].crc, 0U);
  EXPECT_EQ(as_text(o.file->load().get<Tensor>().bytes()), kSixFloats);
}

}  // namespace torch_file_test
}  // namespace cairn
