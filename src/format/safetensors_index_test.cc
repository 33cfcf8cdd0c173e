#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cairn/error.h"
#include "format/safetensors.h"

namespace cairn {
namespace safetensors_index_test {

SafetensorsIndex parse(std::string_view json, const Limits& limits = {}) {
  return read_safetensors_index(*memory_source(as_bytes(json)), limits);
}

ErrorCode refusal(std::string_view json, const Limits& limits = {}) {
  try {
    parse(json, limits);
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "accepted: " << json;
  return ErrorCode::kInternal;
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;
constexpr ErrorCode kLimit = ErrorCode::kLimit;

TEST(SafetensorsIndex, ReadsTheMapInFileOrder) {
  const SafetensorsIndex index =
      parse(R"({"metadata": {"total_size": 12}, )"
            R"("weight_map": {"b": "model-00002-of-00002.safetensors", "a": "x/m.safetensors"}})");
  EXPECT_EQ(index.total_size, 12U);
  const std::vector<std::pair<std::string, std::string>> map = {{"b", "model-00002-of-00002.safetensors"},
                                                                {"a", "x/m.safetensors"}};
  EXPECT_EQ(index.weight_map, map);
}

TEST(SafetensorsIndex, IgnoresWhatItDoesNotKnow) {
  const SafetensorsIndex index =
      parse(R"({"x": [1, {"y": null}], "weight_map": {"a": "f"}, )"
            R"("metadata": {"total_parameters": 5, "total_size": 1.6e3, "q": {}}})");
  EXPECT_EQ(index.total_size, 1600U);
  EXPECT_EQ(index.weight_map.size(), 1U);
  EXPECT_EQ(parse(R"({"weight_map":{},"metadata":null})").total_size, 0U);
  EXPECT_EQ(parse(R"({"weight_map":{}})").total_size, 0U);
}

TEST(SafetensorsIndex, RefusesTotalsThatAreNoExactNumbers) {
  EXPECT_EQ(parse(R"({"weight_map":{},"metadata":{"total_size":9007199254740992.0}})").total_size,
            std::uint64_t{1} << 53);
  for (const char* total : {"9007199254740994.0", "1e300", "18446744073709551616"})
    EXPECT_EQ(refusal(fmt::format(R"({{"weight_map":{{}},"metadata":{{"total_size":{}}}}})", total)), kLimit);
}

TEST(SafetensorsIndex, RefusesWhatIsNotAnIndex) {
  for (const char* json :
       {"", "[]", "{}", "{\"metadata\":{}}", "{\"weight_map\":[]}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{}}x", "{\"weight_map\":{}", "{\"weight_map\":{},\"metadata\":{\"total_size\":-1}}",
        "{\"weight_map\":{},\"metadata\":{\"total_size\":1.5}}",
        "{\"weight_map\":{},\"metadata\":{\"total_size\":\"1\"}}", "{\"weight_map\":{\"\xff\":\"f\"}}"}) {
    EXPECT_EQ(refusal(json), kCorrupt) << json;
  }
}

TEST(SafetensorsIndex, RefusesDuplicateKeysAtEveryLevel) {
  EXPECT_EQ(refusal(R"({"weight_map":{},"weight_map":{}})"), kCorrupt);
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"f","a":"f"}})"), kCorrupt);
  EXPECT_EQ(refusal(R"({"weight_map":{},"metadata":{"total_size":1,"total_size":1}})"), kCorrupt);
  EXPECT_EQ(refusal(R"({"weight_map":{},"x":{"k":1,"k":1}})"), kCorrupt);
}

TEST(SafetensorsIndex, RefusesFilesOutsideTheDirectory) {
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"../f"}})"), kCorrupt);
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"/f"}})"), kCorrupt);
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"f\u0000"}})"), kCorrupt);
  EXPECT_EQ(refusal(R"({"weight_map":{"a":""}})"), kCorrupt);
}

TEST(SafetensorsIndex, RefusesMoreThanTheLimits) {
  Limits limits;
  limits.json_bytes = 17;
  EXPECT_EQ(parse(R"({"weight_map":{}})", limits).total_size, 0U);
  EXPECT_EQ(refusal(R"({"weight_map":{} })", limits), kLimit);
  limits = {};
  const auto nested = [](int depth) {
    return R"({"weight_map":{},"x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(parse(nested(15)).weight_map.size(), 0U);
  EXPECT_EQ(refusal(nested(16)), kLimit);
}

TEST(SafetensorsIndex, WritesWhatPythonsJsonWrites) {
  SafetensorsIndex index;
  EXPECT_EQ(write_safetensors_index(index),
            "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}");
  index.total_size = 12;
  index.weight_map = {{"a\xc3\xa4", "f1"}, {"b", "f2"}};
  const std::string json = write_safetensors_index(index);
  EXPECT_EQ(json,
            "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n    \"a\\u00e4\": "
            "\"f1\",\n    \"b\": \"f2\"\n  }\n}");
  EXPECT_EQ(parse(json).weight_map, index.weight_map);
  index.weight_map.push_back(index.weight_map[0]);
  EXPECT_THROW(write_safetensors_index(index), Error);
  index.weight_map = {{"\xff", "f"}};
  EXPECT_THROW(write_safetensors_index(index), Error);
}

}  // namespace safetensors_index_test
}  // namespace cairn
