#include "format/sharding_info.h"

#include "testing/errors.h"

namespace cairn {
namespace sharding_info_test {

TEST(ShardingInfo, ReadsOffsetsByName) {
  const auto info =
      parse_sharding_info(R"({"w": {"saved_offsets": [0, 8]}, "s": {"saved_offsets": []}})", {});
  ASSERT_EQ(info.size(), 2u);
  EXPECT_EQ(info.at("w"), (Shape{0, 8}));
  EXPECT_EQ(info.at("s"), Shape{});
}

TEST(ShardingInfo, PassesOverAttributesItDoesNotKnow) {
  const auto info = parse_sharding_info(R"({"w": {"note": "x", "more": [1, 2], "saved_offsets": [3]}})", {});
  EXPECT_EQ(info.at("w"), Shape{3});
}

TEST(ShardingInfo, RefusesOtherForms) {
  for (const char* text :
       {"", "{", "[]", "7", "{\"w\": 7}", "{\"w\": [1]}", "{\"w\": {}}", "{\"w\": {\"saved_offsets\": 1}}",
        "{\"w\": {\"saved_offsets\": [-1]}}", "{\"w\": {\"saved_offsets\": [1.5]}}",
        "{\"w\": {\"saved_offsets\": [[1]]}}", "{\"w\": {\"saved_offsets\": [99999999999999999999]}}",
        "{\"w\": {\"saved_offsets\": [9223372036854775808]}}", "{\"w\": {\"a\": {}}}",
        "{\"w\": {\"saved_offsets\": [1], \"saved_offsets\": [2]}}",
        "{\"w\": {\"saved_offsets\": [1]}, \"w\": {\"saved_offsets\": [1]}}",
        "{\"w\": {\"saved_offsets\": [{}]}}", "{\"w\": {\"saved_offsets\": [1]}} x"}) {
    EXPECT_EQ(error_of([&] { parse_sharding_info(text, {}); }).code(), ErrorCode::kCorrupt) << text;
  }
}

TEST(ShardingInfo, RefusesWhatOnlyOurJsonReaderWouldPassOver) {
  const std::string good = R"({"w": {"saved_offsets": [1]}})";
  for (const std::string& text : {good + std::string("\0 x", 3), good + '\0', "\xef\xbb\xbf" + good}) {
    EXPECT_EQ(error_of([&] { parse_sharding_info(text, {}); }).code(), ErrorCode::kCorrupt);
  }
}

TEST(ShardingInfo, BoundsTheNumberOfDimensions) {
  Limits limits;
  limits.tensor_rank = 2;
  EXPECT_NO_THROW(parse_sharding_info(R"({"w": {"saved_offsets": [1, 2]}})", limits));
  EXPECT_THROW(parse_sharding_info(R"({"w": {"saved_offsets": [1, 2, 3]}})", limits), Error);
}

TEST(ShardingInfo, SurvivesDeepNesting) {
  const std::string deep = R"({"w": {"x": )" + std::string(1'000'000, '[');
  EXPECT_EQ(error_of([&] { parse_sharding_info(deep, {}); }).code(), ErrorCode::kCorrupt);
}

TEST(ShardingInfo, ReadsWhatItWrites) {
  const std::string json = write_sharding_info({{"a\"\xc3\xa4", {0, 8}}, {"scalar", {}}});
  EXPECT_EQ(json, "{\"a\\\"\\u00e4\": {\"saved_offsets\": [0, 8]}, \"scalar\": {\"saved_offsets\": []}}");
  const auto offsets = parse_sharding_info(json, Limits());
  EXPECT_EQ(offsets.size(), 2U);
  EXPECT_EQ(offsets.at("a\"\xc3\xa4"), (Shape{0, 8}));
  EXPECT_EQ(offsets.at("scalar"), Shape());
}

}  // namespace sharding_info_test
}  // namespace cairn
