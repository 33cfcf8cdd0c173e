#include "cairn/glob.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace cairn {
namespace {

TEST(Glob, StarCrossesDots) {
  EXPECT_TRUE(matches_glob("model.*.w", "model.layers.0.w"));
  EXPECT_TRUE(matches_glob("*.w", "model.layers.0.w"));
  EXPECT_FALSE(matches_glob("model.*.w", "model.layers.0.b"));
}

TEST(Glob, StarMatchesNothingToo) {
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_TRUE(matches_glob("a*b", "ab"));
  EXPECT_TRUE(matches_glob("ab*", "ab"));
}

TEST(Glob, QuestionMarkIsExactlyOneCharacter) {
  EXPECT_TRUE(matches_glob("w?", "w1"));
  EXPECT_FALSE(matches_glob("w?", "w"));
  EXPECT_FALSE(matches_glob("w?", "w12"));
  EXPECT_TRUE(matches_glob("w?x", "w\xC3\xA9x"));
}

TEST(Glob, TheWholeNameMustMatch) {
  EXPECT_FALSE(matches_glob("model", "model.w"));
  EXPECT_FALSE(matches_glob("w", "model.w"));
  EXPECT_FALSE(matches_glob("", "w"));
  EXPECT_TRUE(matches_glob("", ""));
}

TEST(Glob, BackslashTakesTheNextCharacterAsItIs) {
  EXPECT_TRUE(matches_glob("a\\*", "a*"));
  EXPECT_FALSE(matches_glob("a\\*", "ab"));
  EXPECT_TRUE(matches_glob("a\\", "a\\"));
}

TEST(Glob, BracketsStandForThemselves) {
  EXPECT_TRUE(matches_glob("list[0]*", "list[0].w"));
  EXPECT_FALSE(matches_glob("list[0]", "list0"));
}

TEST(Glob, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(matches_glob(pattern + "b", std::string(4096, 'a')));
}

// Clear and exponential: the meaning that the fast one must have.
bool matches_slowly(std::string_view p, std::string_view n) {
  if (p.empty()) return n.empty();
  if (p[0] == '*') return matches_slowly(p.substr(1), n) || (!n.empty() && matches_slowly(p, n.substr(1)));
  return !n.empty() && (p[0] == '?' || p[0] == n[0]) && matches_slowly(p.substr(1), n.substr(1));
}

TEST(Glob, AgreesWithTheRecursiveDefinition) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const auto word = [&](std::string_view letters, std::size_t most) {
    std::string text(random() % (most + 1), ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    return text;
  };
  for (int i = 0; i < 20000; ++i) {
    const std::string pattern = word("ab*?", 6);
    const std::string name = word("ab", 7);
    ASSERT_EQ(matches_glob(pattern, name), matches_slowly(pattern, name))
        << "seed " << kSeed << ": '" << pattern << "' on '" << name << "'";
  }
}

}  // namespace
}  // namespace cairn
