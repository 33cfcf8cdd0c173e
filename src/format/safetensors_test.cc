#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "testing/errors.h"

namespace cairn {
namespace safetensors_test {

std::string file_of(std::string_view header, std::size_t data_bytes) {
  std::string file(8, '\0');
  store<std::uint64_t>(file.data(), header.size());
  file += header;
  file.append(data_bytes, 'd');
  return file;
}

SafetensorsHeader parse(const std::string& file, const Limits& limits = {}) {
  return read_safetensors_header(*memory_source(as_bytes(file)), limits);
}

ErrorCode refusal_of_file(const std::string& file, const Limits& limits = {}) {
  try {
    parse(file, limits);
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "accepted: " << file;
  return ErrorCode::kInternal;
}

ErrorCode refusal(std::string_view header, std::size_t data_bytes, const Limits& limits = {}) {
  return refusal_of_file(file_of(header, data_bytes), limits);
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;
constexpr ErrorCode kLimit = ErrorCode::kLimit;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;

constexpr std::string_view kOne = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string header =
      R"({"__metadata__":{"format":"pt","k\n":""},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}}  )";
  const SafetensorsHeader read = parse(file_of(header, 16));
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(read.data_offset, 8 + header.size());
  EXPECT_EQ(read.tensors[0].name, "b");
  EXPECT_EQ(read.tensors[0].dtype, DType::kBFloat16);
  EXPECT_EQ(read.tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(read.tensors[0].offset, read.data_offset + 4);
  EXPECT_EQ(read.tensors[0].bytes, 12U);
  EXPECT_EQ(read.tensors[1].name, "a");
  EXPECT_EQ(read.tensors[1].shape, Shape());
  EXPECT_EQ(read.tensors[1].offset, read.data_offset);
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}, {"k\n", ""}};
  EXPECT_EQ(read.metadata, metadata);
}

TEST(Safetensors, AnyNumberOfEmptyTensorsMayShareAPlace) {
  std::string header = "{";
  for (int i = 0; i < 200; ++i)
    header += "\"" + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)";
  header.back() = '}';
  EXPECT_EQ(parse(file_of(header, 0)).tensors.size(), 200U);
}

TEST(Safetensors, ErrorsNameTheTensorOrThePlace) {
  for (const std::string_view wrong :
       {R"({"dtype":"F99","shape":[1],"data_offsets":[4,8]})",     // while it is read
        R"({"dtype":"F32","shape":[1]})",                          // at its end
        R"({"dtype":"F32","shape":[1],"data_offsets":[5,9]})",     // where it lies
        R"({"dtype":"F32","shape":[2],"data_offsets":[4,8]})"}) {  // how large it is
    const std::string header =
        R"({"good":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"bad":)" + std::string(wrong) + "}";
    EXPECT_EQ(error_of([&] { parse(file_of(header, 8)); }).tensor(), "bad") << wrong;
  }
  // A file of nothing but the length of its header is long enough to be read.
  EXPECT_EQ(error_of([] { parse(std::string(8, '\0')); }).offset(), 8U);
  EXPECT_EQ(error_of([] { parse(std::string(7, '\0')); }).offset(), std::nullopt);
}

TEST(Safetensors, AcceptsTheOddButLegal) {
  EXPECT_TRUE(parse(file_of("{}", 0)).tensors.empty());
  EXPECT_TRUE(parse(file_of("{ \n}\t\r ", 0)).tensors.empty());
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":null})", 0)).metadata.empty());
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":{}})", 0)).metadata.empty());
  EXPECT_EQ(parse(file_of(R"({"":{"d\u0074ype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)).tensors[0].name,
            "");
  EXPECT_EQ(parse(file_of(R"({"\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1))
                .tensors[0]
                .name.size(),
            1U);
  // Empty tensors take no place, wherever they are.
  const auto empty = parse(file_of(R"({"z":{"dtype":"F32","shape":[0,9],"data_offsets":[4,4]},)"
                                   R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                   R"("y":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                                   4));
  EXPECT_EQ(empty.tensors.size(), 3U);
}

TEST(Safetensors, RefusesFilesThatAreTooShort) {
  for (std::size_t n = 0; n < 8; ++n) EXPECT_EQ(refusal_of_file(std::string(n, '\0')), kCorrupt);
  EXPECT_EQ(refusal_of_file(std::string(8, '\0')), kCorrupt);  // an empty header
  const std::string file = file_of(kOne, 4);
  for (std::size_t n = 8; n < file.size(); ++n) EXPECT_EQ(refusal_of_file(file.substr(0, n)), kCorrupt) << n;
  EXPECT_EQ(refusal_of_file(file + "x"), kCorrupt);
}

TEST(Safetensors, RefusesHeadersAboveTheLimit) {
  Limits limits;
  limits.safetensors_header_bytes = kOne.size();
  EXPECT_EQ(parse(file_of(kOne, 4), limits).tensors.size(), 1U);
  limits.safetensors_header_bytes = kOne.size() - 1;
  EXPECT_EQ(refusal(kOne, 4, limits), kLimit);
  std::string huge = file_of(kOne, 4);
  store<std::uint64_t>(huge.data(), ~0ULL);
  EXPECT_EQ(refusal_of_file(huge), kCorrupt);
}

TEST(Safetensors, RefusesHeadersThatAreNotAnObjectInUtf8) {
  for (const char* header : {" {}", "[]", "{", "{}x", "{},", "\xef\xbb\xbf{}", "{\"\xff\":1}", "{\"a\":1}",
                             "{\"a\":null}", "{\"__metadata__\":1}", "{\"a\":[\"F32\",[],[0,0]]}"}) {
    EXPECT_EQ(refusal(header, 0), kCorrupt) << header;
  }
}

TEST(Safetensors, RefusesDuplicateKeys) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                    R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                    8),
            kCorrupt);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4), kCorrupt);
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"","a":""}})", 0), kCorrupt);
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), kCorrupt);
}

TEST(Safetensors, RefusesEntriesThatAreNotComplete) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4), kCorrupt);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), kCorrupt);
  EXPECT_EQ(refusal(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), kCorrupt);
  EXPECT_EQ(refusal(R"({"a":{}})", 0), kCorrupt);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4), kCorrupt);
}

TEST(Safetensors, RefusesValuesOfTheWrongKind) {
  for (const char* fields :
       {R"("dtype":1,"shape":[1],"data_offsets":[0,4])", R"("dtype":"F32","shape":1,"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[1,],"data_offsets":[0,4])",
        R"("dtype":"F32","shape":[1],"data_offsets":[0])",
        R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])",
        R"("dtype":"F32","shape":[1],"data_offsets":[0,04])",
        R"("dtype":"F32","shape":[1],"data_offsets":null)",
        R"("dtype":"F32","shape":null,"data_offsets":[0,4])"}) {
    EXPECT_EQ(refusal("{\"a\":{" + std::string(fields) + "}}", 4), kCorrupt) << fields;
  }
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0,9007199254740993],"data_offsets":[0,0]}})", 0), kLimit);
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})", 0), kCorrupt);
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":null}})", 0), kCorrupt);
}

TEST(Safetensors, RefusesUnknownElementTypes) {
  for (const char* dtype : {"F6_E2M3", "C128", "f32", ""}) {
    EXPECT_EQ(
        refusal("{\"a\":{\"dtype\":\"" + std::string(dtype) + R"(","shape":[4],"data_offsets":[0,3]}})", 3),
        kUnsupported);
  }
}

TEST(Safetensors, RefusesHolesOverlapsAndWrongSizes) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(parse(file_of(two("[0,4]", "[4,8]"), 8)).tensors.size(), 2U);
  EXPECT_EQ(parse(file_of(two("[4,8]", "[0,4]"), 8)).tensors.size(), 2U);
  EXPECT_EQ(refusal(two("[0,4]", "[5,9]"), 9), kCorrupt);  // hole
  EXPECT_EQ(refusal(two("[0,4]", "[3,7]"), 7), kCorrupt);  // overlap
  EXPECT_EQ(refusal(two("[0,4]", "[0,4]"), 4), kCorrupt);  // the same bytes twice
  EXPECT_EQ(refusal(two("[1,5]", "[5,9]"), 9), kCorrupt);  // a hole at the start
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), 9), kCorrupt);  // bytes left at the end
  EXPECT_EQ(refusal(two("[0,4]", "[4,8]"), 7), kCorrupt);  // bytes lacking at the end
  EXPECT_EQ(refusal(two("[0,5]", "[5,8]"), 8), kCorrupt);  // sizes are not the shapes'
  EXPECT_EQ(refusal(two("[0,4]", "[8,4]"), 8), kCorrupt);  // ends before it starts
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},)"
                    R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                    4),
            kCorrupt);
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  EXPECT_EQ(
      refusal(R"({"a":{"dtype":"F32","shape":[9007199254740992,9007199254740992,0],"data_offsets":[0,0]}})",
              0),
      kCorrupt);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F64","shape":[9007199254740992,1024],"data_offsets":[0,0]}})", 0),
            kCorrupt);
}

TEST(Safetensors, RefusesMoreThanTheLimits) {
  Limits limits;
  limits.tensor_rank = 2;
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1,1,1],"data_offsets":[0,1]}})", 1, limits), kLimit);
  EXPECT_EQ(
      parse(file_of(R"({"a":{"dtype":"U8","shape":[1,1],"data_offsets":[0,1]}})", 1), limits).tensors.size(),
      1U);
  limits.safetensors_tensors = 0;
  EXPECT_EQ(refusal(kOne, 4, limits), kLimit);
  const auto named = [](std::size_t n) {
    return "{\"" + std::string(n, 'n') + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  };
  EXPECT_EQ(parse(file_of(named(65536), 1)).tensors.size(), 1U);
  EXPECT_EQ(refusal(named(65537), 1), kLimit);
}

TEST(Safetensors, CountsF4InBytesAsTorchDoes) {
  const auto f4 = [](const char* shape, const char* end) {
    return std::string(R"({"a":{"dtype":"F4","shape":)") + shape + R"(,"data_offsets":[0,)" + end + "]}}";
  };
  const SafetensorsHeader read = parse(file_of(f4("[4,6]", "12"), 12));
  EXPECT_EQ(read.tensors[0].dtype, DType::kFloat4E2M1FNx2);
  EXPECT_EQ(read.tensors[0].shape, (Shape{4, 3}));
  EXPECT_EQ(read.tensors[0].bytes, 12U);
  EXPECT_EQ(parse(file_of(f4("[3,0]", "0"), 0)).tensors[0].shape, (Shape{3, 0}));
  EXPECT_EQ(refusal(f4("[3]", "2"), 2), kCorrupt);
  EXPECT_EQ(refusal(f4("[]", "1"), 1), kCorrupt);
  EXPECT_EQ(refusal(f4("[2,3]", "3"), 3), kUnsupported);
}

TEST(Safetensors, NamesOfElementTypesGoBothWays) {
  int known = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (const auto name = safetensors_name(dtype)) {
      EXPECT_EQ(dtype_from_safetensors(*name), dtype);
      ++known;
    }
  }
  EXPECT_EQ(known, 20);
  EXPECT_FALSE(safetensors_name(DType::kComplex128));
  EXPECT_FALSE(safetensors_name(DType::kComplex32));
  EXPECT_EQ(safetensors_name(DType::kFloat8E4M3FN), "F8_E4M3");
}

// The bytes are those of safetensors.torch.save for the same tensors in the same order.
TEST(SafetensorsWrite, WritesWhatTheReferenceWrites) {
  std::vector<SafetensorsEntry> entries(2);
  entries[0] = {"b", DType::kInt64, Shape{2}, 0, 0};
  entries[1] = {"a\"\xc3\xa4\n", DType::kFloat4E2M1FNx2, Shape{2, 1}, 0, 0};
  const std::string header = make_safetensors_header(entries, {{"format", "pt"}});
  const std::string json =
      "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
      "\"a\\\"\xc3\xa4\\n\":{\"dtype\":\"F4\",\"shape\":[2,2],\"data_offsets\":[16,18]}}";
  EXPECT_EQ(header.substr(8, json.size()), json);
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(header.find_first_not_of(' ', 8 + json.size()), std::string::npos);
  EXPECT_EQ(load<std::uint64_t>(header.data()), header.size() - 8);
  EXPECT_EQ(entries[0].offset, header.size());
  EXPECT_EQ(entries[1].offset, header.size() + 16);
  EXPECT_EQ(entries[1].bytes, 2U);
  const SafetensorsHeader read = parse(header + std::string(18, 'd'));
  EXPECT_EQ(read.tensors[1].name, entries[1].name);
  EXPECT_EQ(read.tensors[1].shape, entries[1].shape);
  EXPECT_EQ(read.tensors[1].offset, entries[1].offset);
}

TEST(SafetensorsWrite, PadsToTheAlignmentAskedFor) {
  for (const std::uint64_t alignment : {1U, 8U, 100U, 4096U}) {
    std::vector<SafetensorsEntry> entries = {{"a", DType::kUInt8, Shape{3}, 0, 0}};
    const std::string header = make_safetensors_header(entries, {}, alignment);
    EXPECT_EQ(header.size() % alignment, 0U);
    EXPECT_EQ(parse(header + "123").tensors[0].offset, header.size());
  }
}

TEST(SafetensorsWrite, RefusesWhatTheFormatCannotHold) {
  const auto code = [](SafetensorsEntry entry,
                       std::vector<std::pair<std::string, std::string>> metadata = {}) {
    std::vector<SafetensorsEntry> entries = {std::move(entry)};
    try {
      make_safetensors_header(entries, metadata);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code({"a", DType::kComplex128, Shape{1}, 0, 0}), kUnsupported);
  EXPECT_EQ(code({"a", DType::kFloat4E2M1FNx2, Shape{}, 0, 0}), kUnsupported);
  EXPECT_EQ(code({"__metadata__", DType::kInt8, Shape{1}, 0, 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"\xff", DType::kInt8, Shape{1}, 0, 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"a", DType::kInt8, Shape{1}, 0, 0}, {{"k", "\xff"}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({"a", DType::kInt8, Shape{1}, 0, 0}, {{"k", ""}, {"k", ""}}), ErrorCode::kInvalidArgument);
  std::vector<SafetensorsEntry> twice(2, {"a", DType::kInt8, Shape{1}, 0, 0});
  EXPECT_THROW(make_safetensors_header(twice, {}), Error);
}

TEST(SafetensorsWrite, WritesAFileFromTensors) {
  Tensor a = Tensor::zeros(DType::kInt32, Shape{2});
  store<std::int32_t>(a.bytes().data() + 4, 7);
  Tensor b = Tensor::zeros(DType::kUInt8, Shape{0});
  StringSink sink;
  write_safetensors(sink, {{"a", a}, {"b", b}}, {{"format", "pt"}});
  const SafetensorsHeader read = parse(sink.text);
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(load<std::int32_t>(sink.text.data() + read.tensors[0].offset + 4), 7);
  EXPECT_EQ(read.tensors[1].bytes, 0U);
  TensorView view = a.view();
  view.strides = Shape{0};
  EXPECT_THROW(write_safetensors(sink, {{"a", Tensor(view, a.owner())}}), Error);
}

}  // namespace safetensors_test
}  // namespace cairn
