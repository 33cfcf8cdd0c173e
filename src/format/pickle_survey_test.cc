#include "format/pickle_survey.h"

#include <gtest/gtest.h>

#include "format/pickle_writer.h"
#include "testing/pickle_programs.h"

namespace cairn::pickle {
namespace survey_test {

using namespace std::string_literals;

Value whole(const std::string& text, const Limits& limits = {}) {
  const Graph graph = parse(text, Dialect::kMetadata, limits);
  Budget budget(text.size(), limits);
  Survey survey(graph, budget, limits);
  return to_whole_value(graph, graph.root(), survey, budget, limits);
}

bool is_plain(const std::string& body) { return !whole(program(body)).is<Opaque>(); }

// What is kept as a pickle is the same after it was read again.
std::string kept(const std::string& body, const Limits& limits = {}) {
  const std::string once = whole(program(body), limits).get<Opaque>().pickle;
  EXPECT_EQ(whole(once, limits).get<Opaque>().pickle, once) << testing::PrintToString(body);
  return once;
}

TEST(PickleSurvey, PlainIsWhatValuesSayAllOf) {
  EXPECT_TRUE(is_plain("N"));
  EXPECT_TRUE(is_plain("](K\1G\0\0\0\0\0\0\0\0X\1\0\0\0aC\1b}K\1)se"s));
  EXPECT_TRUE(is_plain("](X\1\0\0\0aq\0h\0e"s));  // a string in two places is nobody's to change
  EXPECT_FALSE(is_plain("](]q\0h\0e"s));
  EXPECT_FALSE(is_plain("](K\1\x85q\0h\0e"s));
  EXPECT_FALSE(is_plain("}NK\1s"));
  EXPECT_FALSE(is_plain("\x8f"));
  EXPECT_FALSE(is_plain("ccollections\nOrderedDict\n)R"));
  EXPECT_FALSE(is_plain("ctorch\nSize\n)\x85R"));
  EXPECT_FALSE(is_plain("](K\1ca\nB\ne"));
}

TEST(PickleSurvey, WhatIsSharedIsWrittenOnce) {
  EXPECT_EQ(kept("](](K\1eq\5h\5e"s), program("](]q\0(K\1eh\0e"s));
  EXPECT_EQ(kept("(K\1\x85q\5h\5K\1\x85K\1t"s), program("(K\1\x85q\0h\0K\1\x85K\1t"s));
  EXPECT_EQ(kept("](X\3\0\0\0abcq\5h\5Ne\x85"
                 "ca\nB\n\x86"s),
            program("](X\3\0\0\0abcq\0h\0Ne\x85"
                    "ca\nB\nq\1\x86"s));
}

TEST(PickleSurvey, WhatIsInsideItselfIsKept) {
  EXPECT_EQ(kept("]q\0(K\1h\0e"s), program("]q\0(K\1h\0e"s));
  EXPECT_EQ(kept("}q\0(K\1h\0u"s), program("}q\0(K\1h\0u"s));
  EXPECT_EQ(kept("ca\nB\n)\x81q\0}(X\1\0\0\0ah\0ub"s), program("ca\nB\nq\0)\x81q\1}(X\1\0\0\0ah\1ub"s));
}

// 2^40 parts, when they are unfolded.
TEST(PickleSurvey, NothingIsUnfolded) {
  std::string body = ")";
  for (char i = 0; i < 40; ++i) body += "q"s + i + "h"s + i + "\x86";
  EXPECT_LT(kept(body).size(), 400U);
}

TEST(PickleSurvey, DepthIsBounded) {
  Limits limits;
  limits.depth = 8;
  const auto deep = [](std::size_t lists) {
    return std::string(lists, ']') + "N\x8f" + std::string(lists, 'a').insert(0, "\x86");
  };
  EXPECT_NO_THROW(kept(deep(3), limits));
  EXPECT_EQ(error_of([&] { kept(deep(9), limits); }).code(), ErrorCode::kLimit);
}

TEST(PickleSurvey, OnePartAfterAnother) {
  const std::string text = program("](]q\0(h\0h\0ee"s);  // [[itself, itself]]
  const Graph graph = parse(program("(]q\0](h\0h\0eK\1\x85t"s), Dialect::kMetadata);
  const Limits limits;
  Budget budget(text.size(), limits);
  Survey survey(graph, budget, limits);
  const Ref empty = graph.item(graph.root(), 0), twice = graph.item(graph.root(), 1);
  EXPECT_TRUE(survey.is_plain(empty));
  EXPECT_FALSE(survey.is_shared(empty));
  EXPECT_FALSE(survey.is_plain(twice));
  EXPECT_TRUE(survey.is_shared(empty));
  EXPECT_TRUE(survey.is_plain(empty));
  EXPECT_TRUE(survey.is_plain(graph.item(graph.root(), 2)));
  EXPECT_FALSE(survey.is_plain(graph.root()));
}

TEST(PickleSurvey, AFrozensetIsACallOfItsList) {
  EXPECT_EQ(kept("(K\1K\2\x91"s), program("c__builtin__\nfrozenset\nq\0](K\1K\2e\x85R"s));
  EXPECT_EQ(kept("(\x91"s), program("c__builtin__\nfrozenset\nq\0](e\x85R"s));
  EXPECT_EQ(refusal(program("\x91")), ErrorCode::kCorrupt);
}

}  // namespace survey_test
}  // namespace cairn::pickle
