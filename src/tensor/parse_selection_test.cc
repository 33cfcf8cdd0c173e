#include "cairn/selection.h"
#include "testing/errors.h"

namespace cairn {
namespace {

const Shape kShape{10, 20, 30};

TEST(ParseSelection, ReadsSlicesAsPythonDoes) {
  EXPECT_EQ(parse_selection("[0:16, ::2, -1]", kShape), (Selection{{0, 10, 1}, {0, 10, 2}, {29, 1, 1}}));
  EXPECT_EQ(parse_selection("[2:5]", kShape), (Selection{{2, 3, 1}}));
  EXPECT_EQ(parse_selection("[-3:]", kShape), (Selection{{7, 3, 1}}));
  EXPECT_EQ(parse_selection("[:-3]", kShape), (Selection{{0, 7, 1}}));
  EXPECT_EQ(parse_selection("[1:8:3]", kShape), (Selection{{1, 3, 3}}));
  EXPECT_EQ(parse_selection("[5:2]", kShape), (Selection{{5, 0, 1}}));
  EXPECT_EQ(parse_selection("[-100:100]", kShape), (Selection{{0, 10, 1}}));
  EXPECT_EQ(parse_selection("[100:]", kShape), (Selection{{10, 0, 1}}));
  EXPECT_EQ(parse_selection("[:]", kShape), (Selection{{0, 10, 1}}));
  EXPECT_EQ(parse_selection("[::]", kShape), (Selection{{0, 10, 1}}));
}

TEST(ParseSelection, KeepsTheDimensionOfAnIndex) {
  EXPECT_EQ(parse_selection("[3]", kShape), (Selection{{3, 1, 1}}));
  EXPECT_EQ(parse_selection("[-10]", kShape), (Selection{{0, 1, 1}}));
}

TEST(ParseSelection, FillsDotsWithWholeDimensions) {
  EXPECT_EQ(parse_selection("[..., 3]", kShape), (Selection{{0, 10, 1}, {0, 20, 1}, {3, 1, 1}}));
  EXPECT_EQ(parse_selection("[1, ..., 2]", kShape), (Selection{{1, 1, 1}, {0, 20, 1}, {2, 1, 1}}));
  EXPECT_EQ(parse_selection("[1, 2, 3, ...]", kShape), (Selection{{1, 1, 1}, {2, 1, 1}, {3, 1, 1}}));
  EXPECT_EQ(parse_selection("[...]", Shape{}), Selection{});
}

TEST(ParseSelection, TakesSpacesALastCommaAndNoBrackets) {
  EXPECT_EQ(parse_selection("  [ 1 : 3 , ] ", kShape), (Selection{{1, 2, 1}}));
  EXPECT_EQ(parse_selection("1:3, 4", kShape), (Selection{{1, 2, 1}, {4, 1, 1}}));
  EXPECT_EQ(parse_selection("", kShape), Selection{});
}

TEST(ParseSelection, PointsAtTheOddCharacter) {
  const struct {
    const char* text;
    std::uint64_t at;
    const char* says;
  } bad[] = {
      {"[10]", 1, "outside"},
      {"[0, -21]", 4, "outside"},
      {"[1,2,3,4]", 7, "too many dimensions"},
      {"[::0]", 3, "step"},
      {"[::-1]", 3, "step"},
      {"[]", 1, "expected a number"},
      {"[1,,2]", 3, "expected a number"},
      {"[1", 2, "expected ',' or ']'"},
      {"[1] x", 4, "nothing after"},
      {"[a]", 1, "expected a number"},
      {"[1:2:3:4]", 6, "expected ','"},
      {"[..., ...]", 6, "once"},
      {"[-]", 2, "digit"},
      {"[99999999999999999999]", 1, "64 bits"},
      {"1 2", 2, "expected ','"},
      {"[1.5]", 2, "expected ','"},
  };
  for (const auto& [text, at, says] : bad) {
    const Error e = error_of([&, given = text] { parse_selection(given, kShape); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(e.offset(), at) << text << ": " << e.what();
    EXPECT_TRUE(mentions(e, says)) << text << ": " << e.what();
  }
}

TEST(ParseSelection, RefusesAnIndexIntoAnEmptyDimension) {
  EXPECT_EQ(error_of([] { parse_selection("[0]", Shape{0}); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_selection("[0:5]", Shape{0}), (Selection{{0, 0, 1}}));
}

TEST(ParseSelection, BoundsTheTextsLength) {
  EXPECT_NO_THROW(parse_selection("[1" + std::string(4093, ' ') + "]", kShape));
  EXPECT_EQ(error_of([] { parse_selection("[1" + std::string(4094, ' ') + "]", kShape); }).code(),
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
