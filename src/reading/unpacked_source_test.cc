#include "reading/unpacked_source.h"

#include <gtest/gtest.h>

#include <random>

#include "base/hash.h"
#include "base/sink.h"
#include "format/zstd_sink.h"
#include "reading/transforms.h"
#include "testing/errors.h"

namespace cairn {
namespace {

// Not what a few bytes compress to: the source does not hold all of it.
std::string text_of(std::size_t bytes) {
  std::mt19937 random(5);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random() & 0x1f);
  return text;
}

class Unpacked : public testing::Test {
 protected:
  void SetUp() override {
    if (!zstd_is_built_in()) GTEST_SKIP() << "no libzstd";
    StringSink sink;
    ZstdSink zstd(sink);
    zstd.append(as_bytes(plain));
    zstd.finish();
    packed = std::move(sink.text);
  }

  std::unique_ptr<UnpackedSource> open(std::uint64_t most = 1U << 30) const {
    const auto source = memory_source(as_bytes(packed));
    return std::make_unique<UnpackedSource>(source, [source, most] { return open_stream(*source, most); });
  }
  static std::string read(const ByteSource& source, std::uint64_t offset, std::size_t bytes) {
    std::string text(bytes, '\0');
    source.read_at(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }

  const std::string plain = text_of(5'000'000);
  std::string packed;
};

TEST_F(Unpacked, IsWhatWasPackedAtEveryPlace) {
  const auto source = open();
  ASSERT_EQ(source->size(), plain.size());
  std::mt19937 random(6);
  for (std::uint64_t at = 0; at < plain.size();) {
    const std::size_t bytes = std::min<std::size_t>(1 + random() % 700'000, plain.size() - at);
    EXPECT_EQ(read(*source, at, bytes), plain.substr(at, bytes)) << at;
    at += bytes + random() % 100'000;  // and some are passed over
  }
  EXPECT_EQ(read(*source, 10, 100), plain.substr(10, 100));
  EXPECT_EQ(read(*source, plain.size() - 7, 7), plain.substr(plain.size() - 7));
  EXPECT_EQ(read(*source, 0, plain.size()), plain) << "from the front once more";
  EXPECT_EQ(error_of([&] { read(*source, plain.size() - 7, 8); }).code(), ErrorCode::kCorrupt);
}

TEST_F(Unpacked, SumsWhatPassesWhoeverWantsIt) {
  const auto source = open();
  const std::uint32_t crc = crc32(as_bytes(std::string_view(plain).substr(1000, 4'000'000)));
  read(*source, 2'000'000, 10);
  source->sum(1000, 4'001'000);
  EXPECT_EQ(source->finish_sum(), crc);
  read(*source, 3'000'000, 10);
  read(*source, 3'500'000, 900'000);
  EXPECT_EQ(source->finish_sum(), crc);
}

TEST_F(Unpacked, RefusesToBeReadBackwards) {
  const auto source = open();
  const Error e = error_of([&] {
    for (std::uint64_t at = 4'000'000; at > 1'000'000; at -= 100'000) read(*source, at, 10);
  });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
}

TEST_F(Unpacked, IsNoLongerThanItMayBe) {
  EXPECT_EQ(open(plain.size())->size(), plain.size());
  EXPECT_EQ(error_of([&] { open(plain.size() - 1); }).code(), ErrorCode::kLimit);
}

TEST_F(Unpacked, ABrokenStreamIsCorrupt) {
  packed.resize(packed.size() - 1);
  EXPECT_EQ(error_of([&] { open(); }).code(), ErrorCode::kCorrupt);
  packed.clear();
  EXPECT_EQ(error_of([&] { open(); }).code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace cairn
