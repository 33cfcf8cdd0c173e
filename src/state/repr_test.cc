#include "state/repr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cairn {
namespace {

TEST(ToString, PrintsScalarsAsPythonDoes) {
  EXPECT_EQ(to_string(Value(None{})), "None");
  EXPECT_EQ(to_string(Value(true)), "True");
  EXPECT_EQ(to_string(Value(false)), "False");
  EXPECT_EQ(to_string(Value(-7)), "-7");
  EXPECT_EQ(to_string(Value(Bytes{std::string("a'\0\xff\n", 5)})), R"(b"a'\x00\xff\n")");
}

TEST(ToString, PrintsFloatsInTheirShortestForm) {
  const std::pair<double, const char*> cases[] = {{0.1, "0.1"},
                                                  {1.0, "1.0"},
                                                  {-0.0, "-0.0"},
                                                  {0.0, "0.0"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e16, "1e+16"},
                                                  {1.5e300, "1.5e+300"},
                                                  {123456.789, "123456.789"},
                                                  {1e-4, "0.0001"},
                                                  {1e-5, "1e-05"},
                                                  {1.25e-7, "1.25e-07"},
                                                  {5e-324, "5e-324"},
                                                  {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                  {0.30000000000000004, "0.30000000000000004"},
                                                  {9007199254740993.0, "9007199254740992.0"},
                                                  {-12.5, "-12.5"},
                                                  {1234567890123456.7, "1234567890123456.8"}};
  for (const auto& [v, text] : cases) EXPECT_EQ(to_string(Value(v)), text);
  EXPECT_EQ(to_string(Value(INFINITY)), "inf");
  EXPECT_EQ(to_string(Value(-INFINITY)), "-inf");
  EXPECT_EQ(to_string(Value(NAN)), "nan");
}

TEST(ToString, PrintsBigIntegersInDecimal) {
  EXPECT_EQ(decimal({std::string(8, '\0') + '\x01'}), "18446744073709551616");
  EXPECT_EQ(decimal({std::string(8, '\0') + '\xff'}), "-18446744073709551616");
  EXPECT_EQ(decimal({std::string(7, '\0') + '\x80'}), "-9223372036854775808");
  EXPECT_EQ(decimal({std::string(8, '\xff') + std::string(1, '\0')}), "18446744073709551615");
  EXPECT_EQ(decimal({""}), "0");
  EXPECT_EQ(decimal({"\xff"}), "-1");
  EXPECT_EQ(decimal({std::string(1025, '\x01')}), "<integer of 1025 bytes>");
}

TEST(ToString, QuotesStringsAsPythonDoes) {
  EXPECT_EQ(to_string(Value("a")), "'a'");
  EXPECT_EQ(to_string(Value("it's")), "\"it's\"");
  EXPECT_EQ(to_string(Value("'\"")), R"('\'"')");
  EXPECT_EQ(to_string(Value("a\\b\n\t\r\x01\x7f")), R"('a\\b\n\t\r\x01\x7f')");
  EXPECT_EQ(to_string(Value("\u00e9\u4e2d\U0001f600")), "'\u00e9\u4e2d\U0001f600'");
  EXPECT_EQ(to_string(Value("\u00a0\u2028\ufeff\U000e0001")), R"('\xa0\u2028\ufeff\U000e0001')");
  EXPECT_EQ(to_string(Value("\xed\xa0\x80")), R"('\ud800')");  // a lone surrogate
  EXPECT_EQ(to_string(Value("\xff\xc3")), R"('\xff\xc3')");    // not UTF-8
}

TEST(ToString, PrintsContainersAsPythonDoes) {
  EXPECT_EQ(to_string(Value(List{})), "[]");
  EXPECT_EQ(to_string(Value(List{1, "a"})), "[1, 'a']");
  EXPECT_EQ(to_string(Value(Tuple{})), "()");
  EXPECT_EQ(to_string(Value(Tuple{{1}})), "(1,)");
  EXPECT_EQ(to_string(Value(Tuple{{1, 2}})), "(1, 2)");
  EXPECT_EQ(to_string(Value(Dict{})), "{}");
  EXPECT_EQ(to_string(Value(Dict{{"a", List{None{}}}, {std::int64_t{3}, Dict{{"b", 1.5}}}})),
            "{'a': [None], 3: {'b': 1.5}}");
}

TEST(ToString, PrintsTensorsByTypeAndShape) {
  EXPECT_EQ(to_string(Value(Tensor::zeros(DType::kFloat32, {2, 3}))), "tensor(float32, [2, 3])");
  StoredTensor stored;
  stored.dtype = DType::kBFloat16;
  EXPECT_EQ(to_string(Value(stored)), "tensor(bfloat16, [])");
  ShardedTensor sharded;
  sharded.global_shape = {8};
  EXPECT_EQ(to_string(Value(sharded)), "sharded_tensor(float32, [8])");
  EXPECT_EQ(to_string(Value(Opaque{"my.Class", ""})), "<my.Class object>");
}

TEST(ToString, StopsAtTheLimitWithDots) {
  EXPECT_EQ(to_string(Value(List{1, 2, 3}), 5), "[1, 2...");
  EXPECT_EQ(to_string(Value(List{1, 2, 3}), 9), "[1, 2, 3]");
  EXPECT_EQ(to_string(Value(std::string(1 << 20, 'x')), 4), "'xxx...");
  EXPECT_EQ(to_string(Value("a\u00e9"), 3), "'a...");  // not inside a character
}

TEST(ToString, DeepValuesAreCutNotRecursedInto) {
  Value v = 1;
  for (int i = 0; i < 5000; ++i) {
    List around;
    around.push_back(std::move(v));  // an initializer list would copy
    v = std::move(around);
  }
  const std::string text = to_string(v, 1 << 20);
  EXPECT_LT(text.size(), 2100U);
  EXPECT_NE(text.find("[...]"), std::string::npos);
}

}  // namespace
}  // namespace cairn
