#include "cairn/pickle_view.h"

#include <gtest/gtest.h>

#include "testing/pickle_programs.h"

namespace cairn {
namespace pickle_view_test {

using namespace std::string_literals;
using pickle::program;
using Kind = PickleView::Kind;

TEST(PickleView, ShowsPlainData) {
  const PickleView view(
      program("(NK\7\x8a\x09\0\0\0\0\0\0\0\0\1G?\xe0\0\0\0\0\0\0X\2\0\0\0hiC\1\xff}K\1K\2s"
              "t"s));
  const auto parts = view.items(view.root());
  const std::vector kinds = {Kind::kNone,   Kind::kInt,   Kind::kBigInt, Kind::kFloat,
                             Kind::kString, Kind::kBytes, Kind::kDict};
  ASSERT_EQ(parts.size(), kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(view.kind(parts[i]), kinds[i]) << i;
  EXPECT_EQ(view.integer(parts[1]), 7);
  EXPECT_EQ(view.text(parts[2]), "\0\0\0\0\0\0\0\0\1"s);
  EXPECT_EQ(view.real(parts[3]), 0.5);
  EXPECT_EQ(view.text(parts[4]), "hi");
  EXPECT_EQ(view.text(parts[5]), "\xff");
  EXPECT_EQ(view.items(parts[6]).size(), 2U);
}

TEST(PickleView, TheBytesOfProtocolTwoAreBytes) {
  const PickleView view(program("c_codecs\nencode\nX\2\0\0\0\xc3\xbfX\6\0\0\0latin1\x86R"s));
  EXPECT_EQ(view.kind(view.root()), Kind::kBytes);
  EXPECT_EQ(view.text(view.root()), "\xff");
}

TEST(PickleView, ShowsObjectsAndWhatIsTheSame) {
  const PickleView view(
      program("(ca\nB\nq\0)\x81q\1}X\1\0\0\0xh\1sbcos\nsystem\nX\4\0\0\0true\x85Rh\0ca\nL\n)\x81K\1at"s));
  const auto parts = view.items(view.root());
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(view.kind(parts[0]), Kind::kObject);
  EXPECT_EQ(view.module(parts[0]) + "." + view.name(parts[0]), "a.B");
  EXPECT_FALSE(view.is_called(parts[0]) || view.has_items(parts[0]));
  ASSERT_TRUE(view.state(parts[0]));
  EXPECT_EQ(view.items(*view.state(parts[0]))[1].id, parts[0].id);
  EXPECT_EQ(view.name(parts[1]), "system");
  EXPECT_TRUE(view.is_called(parts[1]) && !view.state(parts[1]));
  EXPECT_EQ(view.text(view.arguments(parts[1])[0]), "true");
  EXPECT_EQ(view.kind(parts[2]), Kind::kClass);
  EXPECT_EQ(view.name(parts[2]), "B");
  EXPECT_TRUE(view.has_items(parts[3]));
}

TEST(PickleView, RefusesWhatNoDescriptionMayHave) {
  for (const std::string& body : {"X\4\0\0\0trueQ"s, "\x8b\1\0\0\0\7"s, "\x8a\x0a\1\1\1\1\1\1\1\1\1\1"s})
    EXPECT_THROW(PickleView(program(body)), Error) << testing::PrintToString(body);
}

}  // namespace pickle_view_test
}  // namespace cairn
