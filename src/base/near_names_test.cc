#include "base/near_names.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using Names = std::vector<std::string>;

Names near(std::string_view wanted, const Names& names, std::size_t most = 3) {
  return near_names(
      wanted, names.size(), [&](std::size_t i) { return std::string_view(names[i]); }, most);
}

TEST(NearNames, FindsATypingMistake) {
  EXPECT_EQ(near("model.wieght", {"model.bias", "model.weight"}), Names{"model.weight"});
}

TEST(NearNames, FindsANameUnderAPrefixAndWithoutOne) {
  EXPECT_EQ(near("w", {"model.w", "model.raw"}), Names{"model.w"});
  EXPECT_EQ(near("module.layer.weight", {"layer.weight", "layer.bias.something"}), Names{"layer.weight"});
}

TEST(NearNames, PutsTheNearestFirst) {
  EXPECT_EQ(near("layer.10", {"layer.22", "Layer.10", "layer.11"}),
            (Names{"Layer.10", "layer.11", "layer.22"}));
}

TEST(NearNames, GivesNothingWhenNothingIsClose) {
  EXPECT_TRUE(near("optimizer", {"model.w", "lr"}).empty());
  EXPECT_TRUE(near("x", {}).empty());
}

TEST(NearNames, GivesNoMoreThanAskedFor) { EXPECT_EQ(near("ab", {"aa", "ac", "ad", "ae"}, 2).size(), 2u); }

TEST(NearNames, CountsInsertionsRemovalsAndReplacementsAlike) {
  EXPECT_EQ(near("abcdef", {"abcdefg"}).size(), 1u);
  EXPECT_EQ(near("abcdef", {"bcdef"}).size(), 1u);
  EXPECT_EQ(near("abcdef", {"abXdeX"}).size(), 1u);
  EXPECT_TRUE(near("abcdef", {"aXXXef"}).empty());
}

TEST(NearNames, TakesVeryLongNames) {
  const std::string longer(100'000, 'a');
  EXPECT_TRUE(near(longer, {longer + "b"}).empty());
}

TEST(DidYouMean, ReadsAsASentence) {
  EXPECT_EQ(did_you_mean({}), "");
  EXPECT_EQ(did_you_mean({"a"}), ", did you mean 'a'?");
  EXPECT_EQ(did_you_mean({"a", "b", "c"}), ", did you mean 'a', 'b' or 'c'?");
}

}  // namespace
}  // namespace cairn
