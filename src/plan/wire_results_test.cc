#include <gtest/gtest.h>

#include "plan/item_tables.h"
#include "plan/wire.h"
#include "plan/wire_header.h"
#include "testing/errors.h"

namespace cairn {
namespace wire_results_test {

WriteResult result_of(std::optional<std::int64_t> hint, std::int64_t size = 0, std::int64_t offset = 0,
                      std::int64_t length = 0) {
  return {{"w", Shape{4}, hint}, size, {"__0_0.distcp", offset, length, {}, {}}};
}

WriteResult decoded(const std::string& message) {
  std::optional<WriteResult> result;
  decode_write_results(as_bytes(message), 0, 1, [&](const WriteResult& one) { result = one; });
  return result.value();
}

std::string encoded(const WriteResult& result) { return encode_write_results({result}, 0, 1); }

// Positions are hints: results that differ in nothing else are equal.
TEST(WireResults, PositionsArriveAsTheyLeft) {
  const std::int64_t most = std::int64_t{kNoEntry} - 1;
  for (const std::optional<std::int64_t> hint : {std::optional<std::int64_t>(), {0}, {1}, {most}})
    EXPECT_EQ(decoded(encoded(result_of(hint))).index.index, hint);
  for (const std::int64_t hint : {std::int64_t{-1}, most + 1, INT64_MIN})
    EXPECT_EQ(error_of([&] { encoded(result_of(hint)); }).code(), ErrorCode::kInvalidArgument) << hint;
}

TEST(WireResults, SizesAndPlacesAreZeroOrMore) {
  EXPECT_EQ(decoded(encoded(result_of(0))), result_of(0));
  EXPECT_EQ(decoded(encoded(result_of(0, 1, 2, 3))), result_of(0, 1, 2, 3));
  for (const WriteResult& wrong : {result_of(0, -1), result_of(0, 0, -1), result_of(0, 0, 0, -1)})
    EXPECT_EQ(error_of([&] { decoded(encoded(wrong)); }).code(), ErrorCode::kCorrupt);
}

TEST(WireResults, ResultsWithMoreBytesAreCorrupt) {
  EXPECT_EQ(error_of([] { decoded(encoded(result_of(0)) + '\0'); }).code(), ErrorCode::kCorrupt);
}

TEST(WireResults, AttributesAreADictOrNotThere) {
  WriteResult result = result_of(0);
  result.storage_data.extra = Dict{{"crc", Value(5)}};
  std::string message = encoded(result);
  EXPECT_EQ(decoded(message), result);
  const std::size_t has_extra = sizeof(PlanHeader) + 2 * 4 + 1 + 12 + 1 + 8 + 20;  // names, lists, in the row
  ASSERT_EQ(load<std::uint32_t>(message.data() + has_extra), 1U);
  store(message.data() + has_extra, std::uint32_t{2});
  EXPECT_EQ(error_of([&] { decoded(message); }).code(), ErrorCode::kCorrupt);
  store(message.data() + has_extra, std::uint32_t{0});  // its bytes are left over
  EXPECT_EQ(error_of([&] { decoded(message); }).code(), ErrorCode::kCorrupt);
}

}  // namespace wire_results_test
}  // namespace cairn
