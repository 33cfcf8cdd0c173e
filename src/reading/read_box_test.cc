#include "reading/read_box.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/hash.h"
#include "tensor/selection.h"
#include "testing/errors.h"

namespace cairn {
namespace {

// Memory that counts what is read from it.
class CountingSource final : public ByteSource {
 public:
  explicit CountingSource(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  const std::string& name() const override { return name_; }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    if (offset + to.size() > bytes_.size()) throw Error(ErrorCode::kCorrupt, "past the end");
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    bytes_read += to.size();
    longest = std::max<std::uint64_t>(longest, to.size());
    ++reads;
  }
  ByteSpan span() const { return bytes_; }

  mutable std::uint64_t bytes_read = 0, longest = 0, reads = 0;

 private:
  std::vector<std::byte> bytes_;
  std::string name_ = "counted";
};

CountingSource numbered(std::size_t elements) {
  std::vector<std::byte> bytes(elements * 4);
  for (std::size_t i = 0; i < elements; ++i) store(bytes.data() + 4 * i, static_cast<std::uint32_t>(i));
  return CountingSource(std::move(bytes));
}

StoredElements whole_of(const CountingSource& source, Shape shape) {
  StoredElements elements;
  elements.source = &source;
  elements.storage_bytes = source.size();
  elements.dtype = DType::kInt32;
  elements.strides = contiguous_strides(shape);
  elements.shape = std::move(shape);
  return elements;
}

Tensor read_all_of(const StoredElements& from, const Selection& selection) {
  const Selection complete = complete_selection(selection, from.shape);
  Tensor result = Tensor::empty(from.dtype, shape_of(complete));
  read_box(from, complete, result.view());
  return result;
}

std::vector<std::int32_t> numbers(const Tensor& tensor) {
  std::vector<std::int32_t> all(tensor.bytes().size() / 4);
  if (!all.empty()) std::memcpy(all.data(), tensor.bytes().data(), tensor.bytes().size());
  return all;
}

TEST(ReadBox, AgreesWithIndexingElementByElement) {
  const unsigned seed = 77;
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  const CountingSource source = numbered(20'000);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round);
    const auto rank = static_cast<std::size_t>(pick(0, 4));
    StoredElements from = whole_of(source, Shape(rank, 0));
    from.first_element = static_cast<std::uint64_t>(pick(0, 50));
    std::int64_t reach = static_cast<std::int64_t>(from.first_element);
    Selection selection;
    for (std::size_t d = 0; d < rank; ++d) {
      from.shape[d] = pick(1, 8);
      from.strides[d] = pick(0, 3) == 0 ? 0 : pick(1, 600);
      reach += (from.shape[d] - 1) * from.strides[d];
      const std::int64_t step = pick(1, 3), start = pick(0, from.shape[d] - 1);
      selection.push_back({start, pick(0, 4) == 0 ? 1 : (from.shape[d] - start + step - 1) / step, step});
    }
    ASSERT_LT(reach, 20'000);
    const std::vector<std::int32_t> got = numbers(read_all_of(from, selection));
    const Shape counts = shape_of(selection);
    ASSERT_EQ(static_cast<std::int64_t>(got.size()), counts.numel());
    for (std::size_t i = 0; i < got.size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i), at = static_cast<std::int64_t>(from.first_element);
      for (std::size_t d = rank; d-- > 0;) {
        at += (selection[d].start + rest % counts[d] * selection[d].step) * from.strides[d];
        rest /= counts[d];
      }
      ASSERT_EQ(got[i], at) << "element " << i;
    }
  }
}

TEST(ReadBox, ReadsARowWithNothingAroundIt) {
  const CountingSource source = numbered(100 * 1000);
  EXPECT_EQ(numbers(read_all_of(whole_of(source, {100, 1000}), {{7, 1, 1}})).front(), 7000);
  EXPECT_EQ(source.bytes_read, 4000u);
  EXPECT_EQ(source.reads, 1u);
}

TEST(ReadBox, SkipsLargeGapsAndReadsSmallOnesAlong) {
  const CountingSource source = numbered(1000 * 1100);
  // Columns of 1100 * 4 bytes: the gap is over a page, so each element is a read of its own.
  const auto wide = numbers(read_all_of(whole_of(source, {1000, 1100}), {{0, 1000, 1}, {3, 1, 1}}));
  EXPECT_EQ(wide[999], 999 * 1100 + 3);
  EXPECT_EQ(source.bytes_read, 4000u);
  source.bytes_read = source.reads = 0;
  // Columns of 1000 * 4 bytes: less than a page apart, so one read from the first to the last.
  const auto narrow = numbers(read_all_of(whole_of(source, {1000, 1000}), {{0, 1000, 1}, {3, 1, 1}}));
  EXPECT_EQ(narrow[999], 999'003);
  EXPECT_EQ(source.reads, 1u);
  EXPECT_EQ(source.bytes_read, 999u * 4000 + 4);
}

TEST(ReadBox, ReadsGapsOfFivePercentAlong) {
  const CountingSource source = numbered(10 * 100'000);
  const auto got = numbers(read_all_of(whole_of(source, {10, 100'000}), {{0, 10, 1}, {0, 96'000, 1}}));
  EXPECT_EQ(got[9 * 96'000], 900'000);
  EXPECT_LE(source.bytes_read, got.size() * 4 * 105 / 100);
  source.bytes_read = 0;
  read_all_of(whole_of(source, {10, 100'000}), {{0, 10, 1}, {0, 90'000, 1}});
  EXPECT_EQ(source.bytes_read, 10u * 90'000 * 4);
}

TEST(ReadBox, ReadsNoMoreThanItsBufferAtATime) {
  const CountingSource source = numbered(6'000'000);
  const auto contiguous = numbers(read_all_of(whole_of(source, {6'000'000}), {}));
  EXPECT_EQ(contiguous[5'999'999], 5'999'999);
  EXPECT_LE(source.longest, kReadBuffer);
  const auto every_other = numbers(read_all_of(whole_of(source, {6'000'000}), {{0, 3'000'000, 2}}));
  EXPECT_EQ(every_other[2'999'999], 5'999'998);
  EXPECT_LE(source.longest, kReadBuffer);
  StoredElements transposed = whole_of(source, {2000, 3000});
  transposed.strides = {1, 2000};
  const auto turned = numbers(read_all_of(transposed, {}));
  EXPECT_EQ(turned[1], 2000);
  EXPECT_EQ(turned[5'999'999], 5'999'999);
  EXPECT_LE(source.longest, kReadBuffer);
}

TEST(ReadBox, ReadsARepeatedElementOnce) {
  const CountingSource source = numbered(10);
  StoredElements expanded = whole_of(source, {1000, 3});
  expanded.strides = {0, 1};
  expanded.first_element = 4;
  const auto got = numbers(read_all_of(expanded, {}));
  EXPECT_EQ(got[2999], 6);
  EXPECT_EQ(source.bytes_read, 12u);
}

TEST(ReadBox, ConvertsToTheDestinationsType) {
  const CountingSource source = numbered(10);
  Tensor result = Tensor::empty(DType::kFloat64, {10});
  read_box(whole_of(source, {10}), {{0, 10, 1}}, result.view());
  EXPECT_EQ(load<double>(result.bytes().data() + 8 * 9), 9.0);
}

TEST(ReadBox, ChecksTheCrcWhenTheWholeStorageIsRead) {
  const CountingSource source = numbered(3'000'000);
  StoredElements from = whole_of(source, {3'000'000});
  from.crc = crc32(source.span());
  EXPECT_NO_THROW(read_all_of(from, {}));
  from.shape = {1000, 3000};
  from.strides = {1, 1000};
  EXPECT_NO_THROW(read_all_of(from, {}));
  from.crc = *from.crc + 1;
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kCorrupt);
  from = whole_of(source, {3'000'000});
  from.crc = 1;
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kCorrupt);
  EXPECT_NO_THROW(read_all_of(from, {{1, 2'999'999, 1}})) << "a part says nothing about the whole";
}

TEST(ReadBox, RefusesElementsOutsideTheStorage) {
  const CountingSource source = numbered(10);
  StoredElements from = whole_of(source, {11});
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kCorrupt);
  from = whole_of(source, {10});
  from.first_element = 1;
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kCorrupt);
  from = whole_of(source, {10});
  from.storage_offset = 4;
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kCorrupt);
  from = whole_of(source, {2});
  from.strides = {INT64_MAX};
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kLimit);
  from.strides = {-1};
  EXPECT_EQ(error_of([&] { read_all_of(from, {}); }).code(), ErrorCode::kUnsupported);
}

TEST(ReadBox, ReadsNothingForAnEmptySelection) {
  const CountingSource source = numbered(10);
  EXPECT_TRUE(numbers(read_all_of(whole_of(source, {10}), {{3, 0, 1}})).empty());
  EXPECT_EQ(source.reads, 0u);
}

}  // namespace
}  // namespace cairn
