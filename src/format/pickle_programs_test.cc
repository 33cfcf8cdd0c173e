// What the machine makes of single opcodes, and both sides of its limits.

#include <gtest/gtest.h>

#include "format/pickle_ops.h"
#include "testing/pickle_programs.h"

namespace cairn::pickle {
namespace pickle_programs_test {

using namespace std::literals;

const std::string kThing = "ca\nB\n)\x81";  // a.B.__new__(a.B)

struct Filling {
  const char* name;
  std::string made;    // a container; its memo number is 0
  std::string filled;  // opcodes that put something into it
};

const std::vector<Filling>& fillings() {
  static const std::vector<Filling> all = {
      {"APPEND", "]q\0"s, "K\1a"s},
      {"APPENDS", "]q\0"s, "(K\1K\2e"s},
      {"SETITEM", "}q\0"s, "K\1K\2s"s},
      {"SETITEMS", "}q\0"s, "(K\1K\2u"s},
      {"ADDITEMS", "\x8fq\0"s, "(K\1\x90"s},
      {"APPEND to an object", kThing + "q\0"s, "K\1a"s},
      {"APPENDS to an object", kThing + "q\0"s, "(K\1e"s},
      {"SETITEM of an object", kThing + "q\0"s, "K\1K\2s"s},
      {"SETITEMS of an object", kThing + "q\0"s, "(K\1K\2u"s},
  };
  return all;
}

TEST(PickleMachine, AContainerOfMetadataIsNotChangedAfterItWasFetched) {
  for (const auto& [name, made, filled] : fillings()) {
    // Under two other values, so that its place is not the first one.
    const std::string fetched = program("NN" + made + "h\0"s + filled + "\x87\x86");
    EXPECT_EQ(refusal(fetched, Dialect::kMetadata), ErrorCode::kUnsupported) << name;
    EXPECT_NO_THROW(parse(fetched, Dialect::kTorch)) << name;
    EXPECT_NO_THROW(parse(program("NN" + made + filled + "\x87"), Dialect::kMetadata)) << name;
  }
}

TEST(PickleMachine, AFetchedContainerMayBeAnItemOfANewOne) {
  for (const std::string& filled : {"h\0a"s, "(h\0e"s, "(Nh\0e"s})
    EXPECT_NO_THROW(parse(program("]q\0]"s + filled + "\x86"), Dialect::kMetadata)) << filled;
  EXPECT_NO_THROW(parse(program("]q\0}K\1h\0s\x86"s), Dialect::kMetadata));
  EXPECT_NO_THROW(parse(program("]q\0}(K\1h\0u\x86"s), Dialect::kMetadata));
  // The place of a fetched value that has left the stack is anybody's.
  EXPECT_NO_THROW(parse(program("]q\0h\0\x85]K\1a\x87"s), Dialect::kMetadata));
}

TEST(PickleMachine, WhatIsFetchedAndFilledInATorchFileIsOneContainer) {
  EXPECT_EQ(value_of(program("]q\0h\0K\1a\x86"s)), Value(Tuple{{List{1}, List{1}}}));
}

TEST(PickleMachine, AContainerKnowsItsSize) {
  // One item, then two more, with other values between them; the same in pairs.
  const Graph list = parse(program("]K\1a(NNe"s));
  EXPECT_EQ(list.size(list.root()), 3U);
  const Graph dict = parse(program("}K\1Ns(K\2NK\3Nu"s));
  EXPECT_EQ(dict.size(dict.root()), 6U);  // keys and values
}

TEST(PickleMachine, ShortBinStringIsForTorchFilesOnly) {
  EXPECT_EQ(value_of(program("U\2hi"s)), Value("hi"));
  EXPECT_EQ(refusal(program("U\2hi"s), Dialect::kMetadata), ErrorCode::kUnsupported);
  for (const std::string& text : {"X\1\0\0\0a"s, "C\1a"s, "B\1\0\0\0a"s, "\x8d\1\0\0\0\0\0\0\0a"s})
    EXPECT_NO_THROW(parse(program(text), Dialect::kMetadata));
}

TEST(PickleMachine, OpcodesTakeNothingFromBelowTheMark) {
  struct Case {
    std::string below, above, op;
  };
  for (const auto& [below, above, op] : std::vector<Case>{{"N", "", "\x94"},
                                                          {"N", "", "q\0"s},
                                                          {"N", "", "r\0\0\0\0"s},
                                                          {"N", "", "Q"},
                                                          {"]", "N", "a"},
                                                          {"N", "N", "\x86"},
                                                          {"NN", "N", "\x87"},
                                                          {"}", "NN", "s"},
                                                          {"ca\nB\n", ")", "R"},
                                                          {"ca\nB\n", ")", "\x81"},
                                                          {kThing, "N", "b"},
                                                          {"X\1\0\0\0a"s, "X\1\0\0\0b"s, "\x93"}}) {
    EXPECT_EQ(refusal(program(below + "(" + above + op + "t\x86")), ErrorCode::kCorrupt)
        << testing::PrintToString(op);
    EXPECT_NO_THROW(parse(program("(" + below + above + op + "t"))) << testing::PrintToString(op);
  }
}

// GLOBAL at byte 2; the line break that ends it lies `end` bytes behind its opcode.
std::string global_that_ends_at(std::size_t end) { return "ca\n" + std::string(end - 3, 'b') + "\n"; }

TEST(PickleMachine, AGlobalEndsWithinTwoKilobytes) {
  Limits limits;
  limits.class_name_bytes = 4096;
  EXPECT_NO_THROW(parse(program(global_that_ends_at(2048)), Dialect::kTorch, limits));
  EXPECT_EQ(refusal(program(global_that_ends_at(2049)), Dialect::kTorch, limits), ErrorCode::kCorrupt);
  // One that does not end, with a STOP where a reader would go on that cuts it there.
  EXPECT_EQ(refusal("\x80\2ca\n"s + std::string(2046, 'b') + "."), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal("\x80\2"s + "c" + std::string(2048, 'b') + "\n."), ErrorCode::kCorrupt);
}

// LONG1 of the lowest `length` bytes.
std::string long1(std::int64_t value, std::size_t length) {
  std::string bytes(reinterpret_cast<const char*>(&value), std::min<std::size_t>(length, 8));
  bytes.resize(length, value < 0 ? '\xff' : '\0');
  return program("\x8a"s + static_cast<char>(length) + bytes);
}

TEST(PickleMachine, IntegersOfEveryLengthKeepTheirSign) {
  for (std::size_t length = 1; length <= 8; ++length) {
    const std::int64_t least = INT64_MIN >> (64 - 8 * length);
    for (const std::int64_t value : {least, least + 1, -least - 1, std::int64_t{-1}, std::int64_t{1}})
      EXPECT_EQ(value_of(long1(value, length)), Value(value)) << value << " in " << length << " bytes";
  }
}

TEST(PickleMachine, IntegersAroundThoseThatFitIntoAReferenceStayThemselves) {
  const std::int64_t most = (std::int64_t{1} << 59) - 1;
  for (const std::int64_t around : {most, -most}) {
    for (std::int64_t value = around - 2; value <= around + 2; ++value) {
      EXPECT_EQ(value_of(long1(value, 8)), Value(value));
      EXPECT_EQ(value_of(program("}" + long1(value, 8).substr(2, 10) + "Ns")), Value(Dict{{value, None{}}}));
    }
  }
}

TEST(PickleMachine, AnIntegerOfMetadataHasAtMostNineBytes) {
  EXPECT_NO_THROW(parse(long1(7, 9), Dialect::kMetadata));
  EXPECT_EQ(refusal(long1(7, 10), Dialect::kMetadata), ErrorCode::kLimit);
  EXPECT_NO_THROW(parse(long1(7, 255)));
}

TEST(PickleMachine, AClassIsCalledWithATuple) {
  for (const std::string& op : {"R"s, "\x81"s}) {
    EXPECT_NO_THROW(parse(program("ca\nB\n)" + op)));
    for (const std::string& args : {"K\1"s, "]"s, "N"s, "ca\nB\n"s})
      EXPECT_EQ(refusal(program("ca\nB\n" + args + op)), ErrorCode::kCorrupt) << op << args;
  }
}

TEST(PickleMachine, ABrokenInstructionIsNone) {
  const std::string two = "NN";
  EXPECT_TRUE(decode(std::string_view(two).substr(0, 1), 0));
  EXPECT_FALSE(decode(std::string_view(two).substr(0, 1), 1));  // whatever lies behind the view
  EXPECT_FALSE(decode("", 0));
  EXPECT_TRUE(decode("K\1"sv, 0));
  EXPECT_FALSE(decode("K"sv, 0));
  EXPECT_TRUE(decode("U\1a"sv, 0));
  EXPECT_FALSE(decode("U\2a"sv, 0));
  EXPECT_TRUE(decode("ca\nb\n"sv, 0));
  EXPECT_FALSE(decode("ca\nb"sv, 0));
}

}  // namespace pickle_programs_test
}  // namespace cairn::pickle
