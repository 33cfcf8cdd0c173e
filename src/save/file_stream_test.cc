#include "save/file_stream.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>

#include "base/hash.h"
#include "testing/errors.h"
#include "testing/faulty.h"
#include "testing/folder.h"

namespace cairn {
namespace {

std::string contents(const FileSystem& files, std::string_view name) {
  const auto source = files.open(name);
  std::string text(source->size(), '\0');
  source->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Buffers of two blocks, so that small inputs already fill them.
const StreamOptions kSmall{.buffer_bytes = 8192, .buffers = 2, .least_direct = 16384};

TEST(FileStream, WritesWhatWasAppendedInWhateverPieces) {
  const TestFolder folder;
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const auto files = round % 2 == 0 ? memory_file_system() : posix_file_system(folder.path());
    FileStream stream(files->create("a", {.replace = true}), kSmall);
    std::string expected;
    for (int i = 0; i < 20; ++i) {
      Tensor piece = Tensor::empty(DType::kUInt8, {static_cast<std::int64_t>(1 + random() % 50000)});
      for (std::byte& b : piece.bytes()) b = static_cast<std::byte>(random());
      if (i % 3 == 0) {
        stream.pad((expected.size() + 4095) / 4096 * 4096 - expected.size());
        expected.resize((expected.size() + 4095) / 4096 * 4096, '\0');
      }
      stream.append(piece.bytes());
      expected += as_text(std::as_const(piece).bytes());
      ASSERT_EQ(stream.position(), expected.size());
    }
    const ManifestFile sums = stream.commit("a");
    ASSERT_EQ(contents(*files, "a"), expected) << "round " << round;
    EXPECT_EQ(sums.size, expected.size());
    ASSERT_EQ(sums.block_crcs.size(), (expected.size() + kManifestBlock - 1) / kManifestBlock);
    EXPECT_EQ(sums.block_crcs[0], crc32(as_bytes(std::string_view(expected).substr(0, kManifestBlock))));
  }
}

TEST(FileStream, AnItemHasAChecksumOfItsOwn) {
  const auto files = memory_file_system();
  FileStream stream(files->create("a"), kSmall);
  stream.append(as_bytes("before"));
  stream.begin_item();
  stream.append(as_bytes("the item"));
  EXPECT_EQ(stream.end_item(), crc32(as_bytes("the item")));
  const ManifestFile sums = stream.commit("a");
  ASSERT_EQ(sums.items.size(), 1U);
  EXPECT_EQ(sums.items[0], (ManifestItem{6, 8, crc32(as_bytes("the item"))}));
}

TEST(FileStream, ChecksumsMayBeOff) {
  const auto files = memory_file_system();
  StreamOptions options = kSmall;
  options.checksums = false;
  FileStream stream(files->create("a"), options);
  stream.begin_item();
  stream.append(as_bytes("x"));
  EXPECT_EQ(stream.end_item(), 0U);
  const ManifestFile sums = stream.commit("a");
  EXPECT_EQ(sums.size, 1U);
  EXPECT_TRUE(sums.block_crcs.empty());
}

TEST(FileStream, WithoutCommitNothingStaysBehind) {
  const TestFolder folder;
  const auto files = posix_file_system(folder.path());
  {
    FileStream stream(files->create("a"), kSmall);
    stream.append(as_bytes(std::string(100000, 'x')));
  }
  EXPECT_TRUE(files->list().empty());
}

// Whichever call fails: the error arrives, no thread hangs, and nothing appears.
TEST(FileStream, AnErrorOfAnyCallReachesTheCallerAndNothingAppears) {
  Tensor large = Tensor::zeros(DType::kUInt8, {65536});
  bool failed = true;
  for (std::uint64_t n = 1; failed; ++n) {
    ASSERT_LT(n, 100U);
    const auto faults = std::make_shared<Faults>();
    faults->fail({.nth = n, .os_error = ENOSPC});
    const auto files = faulty_file_system(memory_file_system(), faults);
    failed = false;
    try {
      FileStream stream(files->create("a"), kSmall);
      for (int i = 0; i < 3; ++i) {
        stream.append(as_bytes(std::string(5000, 'x')));
        stream.pad(4096 - stream.position() % 4096);
        stream.append(large.bytes());
      }
      stream.commit("a");
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.os_error(), ENOSPC);
    }
    faults->clear();
    EXPECT_EQ(files->list().size(), failed ? 0U : 1U) << n;
  }
}

// Small tensors share a buffer, and are written while others are appended.
TEST(FileStream, AnErrorOfTheWritingThreadNamesTheTensorWhoseBytesFailed) {
  for (std::uint64_t n = 1; n <= 5; ++n) {
    const auto faults = std::make_shared<Faults>();
    faults->fail({.call = FileCall::kWrite, .nth = n, .os_error = ENOSPC});
    const auto files = faulty_file_system(memory_file_system(), faults);
    const Error error = error_of([&] {
      FileStream stream(files->create("a"), kSmall);
      for (int i = 0; i < 40; ++i) {
        stream.begin_tensor(std::to_string(i));
        stream.append(as_bytes(std::string(1000, 'x')));
      }
      stream.commit("a");
    });
    EXPECT_EQ(error.tensor(), std::to_string((n - 1) * kSmall.buffer_bytes / 1000)) << error.what();
  }
}

}  // namespace
}  // namespace cairn
