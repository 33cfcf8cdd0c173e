#include "format/names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cairn/error.h"
#include "format/safetensors.h"

namespace cairn {
namespace names_test {

std::optional<std::size_t> duplicate_in(const std::vector<std::string>& names) {
  return find_duplicate(names.size(), [&](std::size_t i) { return std::string_view(names[i]); });
}

bool accepts(std::string_view path, ErrorCode otherwise = ErrorCode::kCorrupt) {
  try {
    check_relative_path(path, Limits());
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), otherwise);
    return false;
  }
}

TEST(FindDuplicate, FindsNoneAmongDifferentNames) {
  EXPECT_FALSE(duplicate_in({}));
  EXPECT_FALSE(duplicate_in({"", "a", "b", "ab"}));
}

TEST(FindDuplicate, FindsOneAmongFewAndAmongMany) {
  EXPECT_EQ(duplicate_in({"a", "b", "a"}), 2U);
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("layer." + std::to_string(i));
  EXPECT_FALSE(duplicate_in(names));
  names[700] = names[3];
  const auto found = duplicate_in(names);
  ASSERT_TRUE(found);
  EXPECT_EQ(names[*found], "layer.3");
}

TEST(RelativePath, AcceptsPlainNames) {
  for (const char* path :
       {"a", "__0_0.distcp", "sharded/model-00001-of-00002.safetensors", "...", ".metadata", "a b"}) {
    EXPECT_TRUE(accepts(path)) << path;
  }
}

TEST(RelativePath, RefusesWaysOutAndSecondSpellings) {
  for (const char* path :
       {"", "/etc/passwd", "..", "../a", "a/..", "a/../b", "a//b", "a/", ".", "./a", "a/./b"}) {
    EXPECT_FALSE(accepts(path)) << path;
  }
  EXPECT_FALSE(accepts(std::string_view("a\0b", 3)));
}

TEST(RelativePath, RefusesMoreThanTheLimits) {
  EXPECT_TRUE(accepts(std::string(255, 'a')));
  EXPECT_FALSE(accepts(std::string(256, 'a'), ErrorCode::kLimit));
  std::string deep = "a";
  while (deep.size() < 4095) deep += "/a";
  EXPECT_TRUE(accepts(deep));
  EXPECT_FALSE(accepts(deep + "/a", ErrorCode::kLimit));
}

}  // namespace names_test
}  // namespace cairn
