#include "format/json_scanner.h"

#include <gtest/gtest.h>

#include <optional>

namespace cairn {
namespace json_scanner_test {

std::optional<std::string> string_of(std::string_view json) {
  try {
    JsonScanner scan(json, 0, "it");
    std::string text(scan.string());
    scan.finish();
    return text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::uint64_t> integer_of(std::string_view json) {
  try {
    JsonScanner scan(json, 0, "it");
    const std::uint64_t value = scan.integer();
    scan.finish();
    return value;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The code of the error that skipping gives; nullopt when it is fine.
std::optional<ErrorCode> skip(std::string_view json, std::uint32_t depth = 4) {
  try {
    JsonScanner scan(json, 0, "it");
    scan.skip_value(depth);
    scan.finish();
    return std::nullopt;
  } catch (const Error& e) {
    return e.code();
  }
}

TEST(JsonScanner, DecodesEscapes) {
  EXPECT_EQ(string_of(R"("plain")"), "plain");
  EXPECT_EQ(string_of(R"("a\"\\\/\b\f\n\r\t")"), "a\"\\/\b\f\n\r\t");
  EXPECT_EQ(string_of(R"("\u0041\u00e4\u20AC\ud83d\ude00")"), "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(string_of(R"("x\u0000y")"), std::string("x\0y", 3));
}

TEST(JsonScanner, RefusesBadStrings) {
  for (const char* json :
       {"", "\"", "\"a", "a\"", R"("\)", R"("\x")", R"("\u12")", R"("\u12g4")", R"("\ud800")",
        R"("\ud800\u0041")", R"("\ud800x")", R"("\udc00")", "\"a\nb\"", "\"\\n\tb\"", R"("a"b)"}) {
    EXPECT_FALSE(string_of(json)) << json;
  }
}

TEST(JsonScanner, ReadsWholeNumbersExactly) {
  EXPECT_EQ(integer_of("0"), 0U);
  EXPECT_EQ(integer_of(" 9007199254740992 "), 9007199254740992U);
  for (const char* json :
       {"", "-0", "-1", "+1", "01", "00", "1.0", "1e0", "1E2", "9007199254740993", "18446744073709551617",
        "99999999999999999999999999", "0x1", "1 2", "NaN", "\"1\""}) {
    EXPECT_FALSE(integer_of(json)) << json;
  }
}

TEST(JsonScanner, SkipsEveryKindOfValue) {
  for (const char* json : {"null", "true", "false", "-1.5e+10", "0", "\"s\"", "[]", "{}", "[1, [2], {}]",
                           R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})"}) {
    EXPECT_FALSE(skip(json)) << json;
  }
}

TEST(JsonScanner, RefusesWhatIsNotJson) {
  for (const char* json :
       {"",        "nul",      "[",          "[1",    "[1,]",      "[,1]", "[1 2]",    "{",
        "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\":1]", "[1}",  "1.",       "1.e3",
        ".5",      "1e",       "1e+",        "-",     "1 1",       "'a'",  "truefalse"}) {
    EXPECT_EQ(skip(json), ErrorCode::kCorrupt) << json;
  }
}

TEST(JsonScanner, RefusesNumbersThatReadersSeeDifferently) {
  EXPECT_EQ(skip("1e309"), ErrorCode::kCorrupt);
  EXPECT_EQ(skip("[-1E+999]"), ErrorCode::kCorrupt);
  EXPECT_EQ(skip(std::string(310, '9')), ErrorCode::kCorrupt);
  EXPECT_FALSE(skip("1.7e308"));
  EXPECT_FALSE(skip("1e-999"));
  EXPECT_FALSE(skip(std::string(308, '9')));
}

TEST(JsonScanner, RefusesDuplicateKeysAtEveryLevel) {
  EXPECT_EQ(skip(R"({"a":1,"a":2})"), ErrorCode::kCorrupt);
  EXPECT_EQ(skip(R"([{"x":{"a":1,"b":0,"\u0061":2}}])"), ErrorCode::kCorrupt);
  EXPECT_FALSE(skip(R"({"\u0061":{"\u0062":1},"\u0062":2,"c":{"\u0061":1}})"));
}

TEST(JsonScanner, RefusesDeeperNestingThanAllowed) {
  EXPECT_FALSE(skip("[[{\"a\":[]}]]", 4));
  EXPECT_EQ(skip("[[{\"a\":[[]]}]]", 4), ErrorCode::kLimit);
  EXPECT_FALSE(skip("1", 0));
  EXPECT_EQ(skip("[]", 0), ErrorCode::kLimit);
  EXPECT_EQ(skip(std::string(1'000'000, '['), 16), ErrorCode::kLimit);
}

TEST(JsonScanner, NamesThePlaceOfAnError) {
  JsonScanner scan("{\"a\" 1}", 100, "the index");
  try {
    scan.object([](std::string_view) {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.offset(), 105U);
    EXPECT_EQ(e.message(), "the index is not as expected: there should be a ':'");
  }
}

TEST(JsonString, EscapesAsTheReferencesDo) {
  const std::string text(
      "\"\\\b\f\n\r\t\x01\x7f"
      "a\xc3\xa4\xf0\x9f\x98\x80",
      16);
  std::string utf8;
  append_json_string(utf8, text, JsonText::kUtf8);
  EXPECT_EQ(utf8,
            "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f"
            "a\xc3\xa4\xf0\x9f\x98\x80\"");
  std::string ascii;
  append_json_string(ascii, text, JsonText::kAscii);
  EXPECT_EQ(ascii, "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u007fa\\u00e4\\ud83d\\ude00\"");
  EXPECT_EQ(string_of(utf8), text);
  EXPECT_EQ(string_of(ascii), text);
}

}  // namespace json_scanner_test
}  // namespace cairn
