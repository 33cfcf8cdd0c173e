#include "convert/name_map.h"

#include "testing/errors.h"

namespace cairn {
namespace {

NameMap with_rule(const std::string& pattern, const std::string& replacement) {
  return NameMap(std::vector<KeyRule>{{pattern, replacement}});
}

TEST(NameMap, AppliesItsRulesOneAfterTheOther) {
  const NameMap map({{"^model\\.", ""}, {"layers\\.(\\d+)", "h.\\1"}, {"(.*)\\.weight$", "$1.w"}});
  EXPECT_EQ(map("model.layers.12.weight"), "h.12.w");
  EXPECT_EQ(map("step"), "step");
  EXPECT_EQ(NameMap({})("model.x"), "model.x");
}

TEST(NameMap, TakesTheFirstWayThatMatchesAsOthersDo) {
  EXPECT_EQ(with_rule("(a|ab)(c|bcd)?", "<$1,$2>")("abcd"), "<a,bcd>");
  EXPECT_EQ(with_rule("a*?b", "x")("aab"), "x");
}

TEST(NameMap, PatternsThatAreNoneAreRefused) {
  for (const char* bad : {"(", "[", "a{2", "*", "(a)\\1"}) {
    EXPECT_EQ(error_of([&] { with_rule(bad, ""); }).code(), ErrorCode::kInvalidArgument) << bad;
  }
}

// Names come from files. None makes a pattern take for ever, or the stack overflow.
TEST(NameMap, HostileNamesCostLittle) {
  EXPECT_EQ(with_rule("(a+)+$", "x")(std::string(60, 'a') + "!"), std::string(60, 'a') + "!");
  EXPECT_EQ(with_rule("(a*)*b", "x")(std::string(60, 'a')), std::string(60, 'a'));
  const NameMap map = with_rule(".*z", "x");
  EXPECT_EQ(map(std::string(1000, 'a')), std::string(1000, 'a'));
  const Error e = error_of([&] { map(std::string(64 << 10, 'a')); });
  EXPECT_EQ(e.code(), ErrorCode::kLimit);
  EXPECT_EQ(NameMap({})(std::string(64 << 10, 'a')).size(), 64U << 10);
}

}  // namespace
}  // namespace cairn
