#include "format/known_archives.h"

#include <gtest/gtest.h>

#include "base/sink.h"
#include "cairn/error.h"

namespace cairn {
namespace known_archives_test {

std::string archive_of(int seed, const Shape& shape = {4, 8}) {
  Tensor tensor = Tensor::empty(DType::kFloat32, shape);
  int n = seed;
  for (std::byte& b : tensor.bytes()) b = static_cast<std::byte>(n = (n * 37 + 11) % 251);
  StringSink sink;
  write_torch_file(sink, Value(tensor));
  return sink.text;
}

std::unique_ptr<TorchFile> opened(const std::string& bytes) {
  return TorchFile::open(memory_source(as_bytes(bytes)));
}

void learn(KnownArchives& known, const std::string& bytes) {
  known.remember(as_bytes(bytes), *opened(bytes));
}

void expect_same(const TorchFile::Stored& a, const TorchFile::Stored& b) {
  EXPECT_EQ(a.tensor, b.tensor);
  EXPECT_EQ(a.storage_key, b.storage_key);
  EXPECT_EQ(a.data_offset, b.data_offset);
  EXPECT_EQ(a.storage_bytes, b.storage_bytes);
  EXPECT_EQ(a.first_element, b.first_element);
  EXPECT_EQ(a.crc, b.crc);
}

TEST(KnownArchives, FindsAnArchiveOfTheSameKind) {
  KnownArchives known;
  EXPECT_EQ(known.find(as_bytes(archive_of(1))), nullptr);
  learn(known, archive_of(1));
  for (int seed = 1; seed < 20; ++seed) {
    const std::string bytes = archive_of(seed);
    const TorchFile::Stored* found = known.find(as_bytes(bytes));
    ASSERT_NE(found, nullptr) << seed;
    expect_same(*found, opened(bytes)->tensors().at(0));
  }
  EXPECT_EQ(known.find(as_bytes(archive_of(1, {8, 4}))), nullptr);
  EXPECT_EQ(known.find(as_bytes(archive_of(1, {4, 9}))), nullptr);
}

TEST(KnownArchives, KnowsSeveralKindsAtATime) {
  KnownArchives known;
  for (int i = 1; i <= 10; ++i) learn(known, archive_of(1, {i, 3}));
  for (int i = 1; i <= 10; ++i) {
    const std::string bytes = archive_of(7, {i, 3});
    const TorchFile::Stored* found = known.find(as_bytes(bytes));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->tensor.shape, (Shape{i, 3}));
  }
}

// Reading in full is the judge: what it refuses is never found, what is found is what it says.
TEST(KnownArchives, AgreesWithTorchFileOnEveryFlippedBit) {
  KnownArchives known;
  learn(known, archive_of(1));
  const std::string good = archive_of(2);
  int found_some = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const TorchFile::Stored* found = known.find(as_bytes(bytes));
    if (found == nullptr) continue;
    ++found_some;
    ASSERT_NO_THROW(expect_same(*found, opened(bytes)->tensors().at(0))) << bit;
  }
  EXPECT_GT(found_some, 0);  // elements, and the serialization id
  EXPECT_LT(found_some, 8 * 200);
}

TEST(KnownArchives, RemembersOnlyWhatIsOneTensor) {
  KnownArchives known;
  const auto remembered = [&](const Value& value) {
    StringSink sink;
    write_torch_file(sink, value);
    learn(known, sink.text);
    return known.find(as_bytes(sink.text)) != nullptr;
  };
  EXPECT_FALSE(remembered(Value(7)));
  EXPECT_FALSE(remembered(Value(List{Value(Tensor::zeros(DType::kFloat32, {2}))})));
  EXPECT_FALSE(remembered(Value(Tensor::zeros(DType::kFloat32, {0}))));
  EXPECT_TRUE(remembered(Value(Tensor::zeros(DType::kFloat32, {}))));
}

}  // namespace known_archives_test
}  // namespace cairn
