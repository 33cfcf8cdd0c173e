#include "format/manifest.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "cairn/error.h"

namespace cairn {
namespace manifest_test {

SaveId save_id() {
  SaveId id;
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(i + 1);
  return id;
}

Manifest sample(bool strong) {
  Manifest manifest;
  manifest.save_id = save_id();
  manifest.block_size = 16;
  manifest.strong = strong;
  manifest.files = {{"__0_0.distcp", 33, {1, 2, 3}, {}, {{0, 10, 7}, {10, 0, 0}, {16, 17, 8}}},
                    {"empty", 0, {}, {}, {}},
                    {"sub/__1_0.distcp", 16, {4}, {}, {}}};
  if (strong) {
    for (ManifestFile& file : manifest.files) {
      for (const std::uint32_t crc : file.block_crcs)
        file.block_hashes.push_back({std::byte(crc), std::byte{9}});
    }
  }
  return manifest;
}

std::string write(const Manifest& manifest) {
  StringSink sink;
  ManifestWriter writer(sink, manifest.save_id, manifest.strong, manifest.block_size);
  for (const ManifestFile& file : manifest.files) writer.add(file);
  writer.finish();
  return sink.text;
}

Manifest read(const std::string& bytes, const Limits& limits = {}) {
  return read_manifest(*memory_source(as_bytes(bytes)), limits);
}

ErrorCode refusal(const std::string& bytes, const Limits& limits = {}) {
  try {
    read(bytes, limits);
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCode::kInternal;
}

// A manifest that somebody changed and sealed again.
template <class T> std::string forged(std::string bytes, std::size_t at, T value) {
  store(bytes.data() + at, value);
  store(bytes.data() + bytes.size() - 4,
        crc32c(as_bytes(std::string_view(bytes).substr(0, bytes.size() - 4))));
  return bytes;
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;

TEST(Manifest, IsReadAsWritten) {
  for (const bool strong : {false, true}) EXPECT_EQ(read(write(sample(strong))), sample(strong));
  Manifest empty;
  EXPECT_EQ(read(write(empty)), empty);
}

TEST(Manifest, InOnePieceItIsTheSame) {
  for (const bool strong : {false, true}) {
    Manifest manifest = sample(strong);
    manifest.block_size = Manifest().block_size;
    for (ManifestFile& file : manifest.files) {
      file.block_crcs.resize(file.size > 0 ? 1 : 0);
      file.block_hashes.resize(strong ? file.block_crcs.size() : 0);
    }
    EXPECT_EQ(read(encode_manifest(manifest.save_id, strong, manifest.files)), manifest);
  }
}

TEST(Manifest, BlocksHaveUpToAGigabyte) {
  Manifest manifest;
  StringSink sink;
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{1} << 30}) {
    manifest.block_size = size;
    EXPECT_EQ(read(write(manifest)).block_size, size);
  }
  EXPECT_EQ(refusal(forged<std::uint64_t>(write(manifest), 32, std::uint64_t{1} << 31)), kCorrupt);
  EXPECT_THROW(ManifestWriter(sink, save_id(), false, std::uint64_t{1} << 31), Error);
  EXPECT_THROW(ManifestWriter(sink, save_id(), false, 0), Error);
}

TEST(Manifest, HasTheDocumentedLayout) {
  const std::string bytes = write(sample(false));
  EXPECT_EQ(bytes.substr(0, 8), "CAIRNMF\n");
  EXPECT_EQ(load<std::uint32_t>(&bytes[8]), 1U);
  EXPECT_EQ(load<std::uint32_t>(&bytes[12]), 0U);
  EXPECT_EQ(bytes[16], 1);
  EXPECT_EQ(load<std::uint64_t>(&bytes[32]), 16U);
  EXPECT_EQ(bytes.substr(40, 4), "FILE");
  EXPECT_EQ(load<std::uint32_t>(&bytes[44]), 12U);
  EXPECT_EQ(load<std::uint64_t>(&bytes[48]), 33U);
  EXPECT_EQ(load<std::uint64_t>(&bytes[56]), 3U);
  EXPECT_EQ(bytes.substr(64, 12), "__0_0.distcp");
  EXPECT_EQ(load<std::uint32_t>(&bytes[76]), 1U);
  EXPECT_EQ(load<std::uint64_t>(&bytes[88 + 40]), 16U);
  const char* end = bytes.data() + bytes.size() - 40;
  EXPECT_EQ(std::string_view(end, 4), "END ");
  EXPECT_EQ(load<std::uint64_t>(end + 4), 3U);
  EXPECT_EQ(load<std::uint64_t>(end + 12), 3U);
  EXPECT_EQ(load<std::uint64_t>(end + 20), 4U);
  EXPECT_EQ(load<std::uint64_t>(end + 28), bytes.size());
  EXPECT_EQ(load<std::uint32_t>(end + 36),
            crc32c(as_bytes(std::string_view(bytes).substr(0, bytes.size() - 4))));
}

TEST(Manifest, EveryFlippedBitIsFound) {
  const std::string bytes = write(sample(true));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    ASSERT_EQ(refusal(changed), kCorrupt) << bit;
  }
}

TEST(Manifest, EveryTruncationAndExtensionIsFound) {
  const std::string bytes = write(sample(true));
  for (std::size_t n = 0; n < bytes.size(); ++n) ASSERT_EQ(refusal(bytes.substr(0, n)), kCorrupt) << n;
  EXPECT_EQ(refusal(bytes + '\0'), kCorrupt);
  EXPECT_EQ(refusal(bytes + bytes), kCorrupt);
  EXPECT_EQ(refusal(bytes + bytes.substr(bytes.size() - 40)), kCorrupt);
}

TEST(Manifest, RefusesLaterVersionsAndFlags) {
  const std::string bytes = write(sample(false));
  EXPECT_EQ(refusal(forged<std::uint32_t>(bytes, 8, 2)), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal(forged<std::uint32_t>(bytes, 12, 2)), ErrorCode::kUnsupported);
}

TEST(Manifest, RefusesForgedContents) {
  const std::string bytes = write(sample(false));
  EXPECT_EQ(read(forged<std::uint32_t>(bytes, 76, 99)).files[0].block_crcs[0], 99U);
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 32, 0)), kCorrupt);  // block size
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 32, 24)), kCorrupt);
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 32, 1ULL << 31)), kCorrupt);
  EXPECT_EQ(refusal(forged<std::uint32_t>(bytes, 40, 0)), kCorrupt);           // section tag
  EXPECT_EQ(refusal(forged<std::uint32_t>(bytes, 44, ~0U)), kCorrupt);         // name length
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 48, 1ULL << 40)), kCorrupt);  // file size
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 56, 1ULL << 40)), kCorrupt);  // item count
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 56, ~0ULL)), kCorrupt);
  EXPECT_EQ(refusal(forged<char>(bytes, 64, '/')), kCorrupt);               // name
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 88 + 8, 11)), kCorrupt);   // items overlap
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 88 + 48, 18)), kCorrupt);  // past the end of the file
  EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, 88 + 48, ~0ULL)), kCorrupt);
  for (const std::size_t back : {36U, 28U, 20U, 12U}) {
    EXPECT_EQ(refusal(forged<std::uint64_t>(bytes, bytes.size() - back, 77)), kCorrupt);
  }
  std::string twice = write({save_id(), 16, false, {{"a", 0, {}, {}, {}}, {"b", 0, {}, {}, {}}}});
  EXPECT_EQ(refusal(forged<char>(twice, 40 + 25 + 24, 'a')), kCorrupt);
}

TEST(Manifest, RefusesMoreThanTheLimit) {
  const std::string bytes = write(sample(false));
  Limits limits;
  limits.manifest_bytes = bytes.size();
  EXPECT_EQ(read(bytes, limits), sample(false));
  limits.manifest_bytes = bytes.size() - 1;
  EXPECT_EQ(refusal(bytes, limits), ErrorCode::kLimit);
}

TEST(ManifestWriter, RefusesWhatTheReaderWould) {
  const auto code = [](Manifest manifest) {
    try {
      write(manifest);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  const auto with = [](ManifestFile file) {
    Manifest manifest;
    manifest.files = {std::move(file)};
    return manifest;
  };
  const ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  EXPECT_EQ(code(with({"../a", 0, {}, {}, {}})), kInvalid);
  EXPECT_EQ(code(with({"a", 1, {}, {}, {}})), kInvalid);
  EXPECT_EQ(code(with({"a", 1, {1}, {StrongHash{}}, {}})), kInvalid);
  EXPECT_EQ(code(with({"a", 1, {1}, {}, {{0, 2, 0}}})), kInvalid);
  EXPECT_EQ(code(with({"a", 2, {1}, {}, {{0, 2, 0}, {1, 1, 0}}})), kInvalid);
  Manifest manifest = sample(false);
  manifest.strong = true;
  EXPECT_EQ(code(manifest), kInvalid);
  manifest = sample(false);
  manifest.files[2].name = "empty";
  EXPECT_EQ(code(manifest), kInvalid);
  manifest.block_size = 3;
  EXPECT_EQ(code(manifest), kInvalid);
  StringSink sink;
  ManifestWriter writer(sink, save_id());
  writer.finish();
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.add({"a", 0, {}, {}, {}}), Error);
}

}  // namespace manifest_test
}  // namespace cairn
