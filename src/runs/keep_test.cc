#include "cairn/keep.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "testing/errors.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;
using Steps = std::vector<std::int64_t>;

const std::chrono::system_clock::time_point kNow(1'800'000'000s);

std::vector<StepFacts> steps_of(const Steps& numbers) {
  std::vector<StepFacts> steps;
  for (const std::int64_t number : numbers) steps.push_back({.step = number, .when = kNow - 1h});
  return steps;
}

Steps kept(const Keep& keep, const std::vector<StepFacts>& steps) {
  const auto reasons = keep.reasons(steps, kNow);
  Steps found;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (!reasons[i].empty()) found.push_back(steps[i].step);
  return found;
}
Steps kept(std::string_view text, const std::vector<StepFacts>& steps) {
  return kept(Keep::parse(text), steps);
}

TEST(Keep, TheLastOnes) {
  auto steps = steps_of({100, 200, 300, 400});
  EXPECT_EQ(kept(last(2), steps), (Steps{300, 400}));
  EXPECT_EQ(kept(last(9), steps).size(), 4U);
  steps[3].abandoned = true;
  EXPECT_EQ(kept(last(2), steps), (Steps{200, 300}));
}

TEST(Keep, TheFirstOfEachInterval) {
  EXPECT_EQ(kept(every(1000), steps_of({0, 500, 999, 1200, 1300, 4000})), (Steps{0, 1200, 4000}));
  EXPECT_EQ(kept(every(1), steps_of({3, 4})), (Steps{3, 4}));
  auto steps = steps_of({1, 2, 3, 4});
  for (int i = 0; i < 4; ++i) steps[i].when = kNow + i * 40min;
  EXPECT_EQ(kept(every(3600s), steps), (Steps{1, 3, 4}));
  for (StepFacts& step : steps) step.when = {};
  steps[0].when = decltype(kNow)(-1s);  // a clock that was never set
  EXPECT_EQ(kept(every(3600s), steps), (Steps{1, 2}));
}

TEST(Keep, TheBestOnesAndNeverWhatIsNoNumber) {
  auto steps = steps_of({1, 2, 3, 4, 5, 6});
  const double inf = std::numeric_limits<double>::infinity();
  const double losses[] = {0.5, NAN, 0.3, 0.5, -inf, inf};
  for (int i = 0; i < 6; ++i) steps[i].metrics["loss"] = losses[i];
  EXPECT_EQ(kept(best("loss", 1), steps), (Steps{5}));
  EXPECT_EQ(kept(best("loss", 3), steps), (Steps{3, 4, 5})) << "of equal ones the later";
  EXPECT_EQ(kept(best("loss", 9), steps), (Steps{1, 3, 4, 5, 6}));
  EXPECT_EQ(kept(best("loss", 2, Better::kHigher), steps), (Steps{4, 6}));
  EXPECT_EQ(kept(best("bleu", 2), steps), Steps());
}

TEST(Keep, ByAgeByNumberAndByTag) {
  auto steps = steps_of({1, 2, 3});
  steps[0].when = kNow - 8 * 24h;
  steps[1].tags.insert("eval");
  EXPECT_EQ(kept("newer_than(7d)", steps), (Steps{2, 3}));
  EXPECT_EQ(kept("steps(1,3,99)", steps), (Steps{1, 3}));
  EXPECT_EQ(kept("tagged(eval)", steps), (Steps{2}));
}

TEST(Keep, RulesAreJoined) {
  const auto steps = steps_of({100, 1000, 1100, 2000, 2100});
  EXPECT_EQ(kept(last(1) | every(1000), steps), (Steps{100, 1000, 2000, 2100}));
  EXPECT_EQ(kept(last(2) & every(1000), steps), (Steps{2000}));
  EXPECT_EQ(kept("last(1)|every(1000)&last(3)", steps), (Steps{2000, 2100}));
  EXPECT_EQ(kept("(last(1)|every(1000))&last(3)", steps), (Steps{2000, 2100}));
  EXPECT_EQ(kept("(last(2)|steps(100))&every(1000)", steps), (Steps{100, 2000}));
  const auto reasons = Keep::parse("last(2)|every(1000)|steps(2100)&last(1)").reasons(steps, kNow);
  EXPECT_EQ(reasons[3], (std::vector<std::string>{"last(2)", "every(1000)"}));
  EXPECT_EQ(reasons[4], (std::vector<std::string>{"last(2)", "steps(2100)&last(1)"}));
  EXPECT_EQ(reasons[2], std::vector<std::string>());
  EXPECT_EQ(kept("", steps), Steps());
}

TEST(Keep, ATextIsReadBack) {
  EXPECT_EQ((last(3) | every(1000) | best("loss", 2)).text(), "last(3)|every(1000)|best(loss,2)");
  EXPECT_EQ(((last(3) | every(5)) & newer_than(86400s * 7)).text(), "(last(3)|every(5))&newer_than(1w)");
  EXPECT_EQ((best("top 1 \"acc\"", 2, Better::kHigher) & tagged("")).text(),
            R"(best("top 1 \"acc\"",2,max)&tagged(""))");
  for (const char* text :
       {"", "last(3)", "every_seconds(3600)", "newer_than(90m)|newer_than(36h)|newer_than(61s)",
        "steps(1,2,30)&(last(1)|tagged(eval/x-1))", R"(best("a,b",1)|tagged("\\"))", "tagged(größe)"}) {
    EXPECT_EQ(Keep::parse(text).text(), text);
    EXPECT_EQ(Keep::parse(Keep::parse(text).text()), Keep::parse(text));
  }
  EXPECT_EQ(Keep::parse(" last ( 3 ) | ((every(5))) ").text(), "last(3)|every(5)");
  EXPECT_EQ(Keep::parse("newer_than(1d12h)").text(), "newer_than(36h)");
  EXPECT_EQ(Keep::parse("best(loss,1,min)").text(), "best(loss,1)");
}

TEST(Keep, WhatIsNoPolicyIsToldWithItsPlace) {
  for (const auto& row : std::initializer_list<std::pair<std::string, const char*>>{
           {"everyy(3)", "did you mean 'every'"},
           {"last(0)", "above 0"},
           {"last(-1)", "above 0"},
           {"last(three)", "at 'three)': a number"},
           {"last(99999999999999999999)", "too large"},
           {"last(3", "')' is expected"},
           {"last(3))", "'|' or '&' is expected"},
           {"last(3)|", "a name is expected"},
           {"best(loss)", "',' is expected"},
           {"best(loss,2,lowest)", "'min' or 'max'"},
           {"newer_than(7y)", "')' is expected"},
           {"newer_than(-7d)", "an age like"},
           {"newer_than(999999999999w)", "an age like"},
           {"tagged(\"x)", "no end"},
           {std::string(100, '(') + "last(1)", "too many parentheses"},
           {std::string(1 << 17, ' '), "longer than"}}) {
    const Error e = error_of([&] { Keep::parse(row.first); });
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << row.first;
    EXPECT_TRUE(mentions(e, row.second)) << e.what();
    EXPECT_LT(e.message().size(), 600U);
  }
}

TEST(Keep, AnyTextIsAPolicyOrAnError) {
  std::mt19937 random(3);
  const std::string_view pieces[] = {"last", "best", "steps", "(",  ")",  "|", "&",
                                     ",",    "3",    "7d",    "\"", "\\", " "};
  int good = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (unsigned i = 0; i < random() % 12; ++i) text += pieces[random() % std::size(pieces)];
    try {
      const Keep keep = Keep::parse(text);
      EXPECT_EQ(Keep::parse(keep.text()), keep) << text;
      ++good;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument) << text;
    }
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace cairn
